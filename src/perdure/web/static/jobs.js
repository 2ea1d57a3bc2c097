// Lists what runs on a schedule, with the next and the last runs, on a page of its own.

import { request } from './api.js';
import { PageQuestion, ask } from './dialogs/question.js';
import { exact } from './exact.js';
import { locale, number, t } from './language.js';
import { drawnBy, redraw, state } from './state.js';
import { Button, Icon, html, render, useState } from './ui.js';

const PAGES_MAX = 10;
const RUNS_MAX = 10;
const STATES = { active: t('active'), paused: t('paused'), done: t('over') };
const RUNS = { claimed: t('waits'), queued: t('running'), skipped: t('skipped'), missed: t('missed'), settled: t('run_is_over') };
const OUTCOMES = { done: t('done'), failed: t('failed'), refused: t('refused'), stopped: t('stopped'), superseded: t('replaced'), interrupted: t('interrupted') };

const shown = { jobs: null, problem: '', isSignedOut: false };
const call = async (method, path, json) => (await request(method, `../api/jobs${path}`, { json })).json();

function timeOf(at, timeZone) {
  try {
    return new Date(at).toLocaleString(locale, { timeZone, dateStyle: 'medium', timeStyle: 'short' });
  } catch {
    return new Date(at).toLocaleString(locale); // a zone that this browser does not know
  }
}

async function allJobs() {
  const found = [];
  let cursor = null;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const { jobs, next } = await call('GET', cursor ? `?cursor=${encodeURIComponent(cursor)}` : '');
    found.push(...jobs);
    if (!next) break;
    cursor = next;
  }
  return found;
}

const UNITS = [['day', 86_400], ['hour', 3600], ['minute', 60], ['second', 1]];

// An interval comes in seconds, an instant in UTC; an expression is shown as it is.
function timesOf(schedule, timezone) {
  if (/^\d{4}-\d\d-\d\dT/.test(schedule)) return timeOf(schedule, timezone);
  const seconds = Number(/^every (\d+) s$/.exec(schedule)?.[1]);
  if (!seconds) return schedule;
  const [unit, size] = UNITS.find(([, each]) => seconds % each === 0 && seconds > each) ?? UNITS.at(-1);
  return t('every_span', { span: number(seconds / size, { style: 'unit', unit, unitDisplay: 'long' }) });
}

// Does something, and reads again what became of it. Says why it could not be done.
async function attempt(act) {
  try {
    await act();
    Object.assign(shown, { jobs: await allJobs(), problem: '' });
  } catch (failure) {
    if (failure.status === undefined) throw failure;
    Object.assign(shown, { problem: failure.message, isSignedOut: failure.status === 401 });
  }
  redraw();
}

function remove({ id, name }) {
  ask({
    id: 'remove',
    title: t('remove_this_job'),
    text: t('name_will_not_run_any', { name: exact(name) }),
    no: t('keep_it'),
    yes: t('remove'),
    act: () => attempt(() => call('DELETE', `/${id}`)),
  });
}

const outcomeOf = (outcome, run) => OUTCOMES[outcome] ?? RUNS[run] ?? outcome ?? run;

function When({ job }) {
  const { next_runs: runs, timezone, why } = job;
  if (runs.length) return html`<dt>${t('next')}</dt><dd>${runs.map((at) => timeOf(at, timezone)).join(' · ')} (${timezone})</dd>`;
  return why ? html`<dt>${t('why')}</dt><dd>${exact(why)}</dd>` : null;
}

function Last({ job: { last_at: at, last_state: run, last_outcome: outcome, timezone } }) {
  const words = run ? [outcomeOf(outcome, run), at && timeOf(at, timezone)].filter(Boolean).join(', ') : t('it_has_not_run_yet');
  return html`<dt>${t('last')}</dt><dd>${words}</dd>`;
}

function Runs({ runs, timezone }) {
  if (!runs.length) return html`<p>${t('it_has_not_run_yet')}</p>`;
  return html`<ul class="runs">${runs.map((run) => html`<li key=${run.due_at}>
    <time>${timeOf(run.due_at, timezone)}</time> ${[outcomeOf(run.outcome, run.state), run.reason, run.delivery].filter(Boolean).join(' · ')}
  </li>`)}</ul>`;
}

function Job({ job }) {
  const [runs, setRuns] = useState(null);
  const { id, state: standing, schedule, conversation, timezone } = job;
  const [name, prompt] = [exact(job.name), exact(job.prompt)];
  const isActive = standing === 'active';
  const act = (label, run, className = 'quiet small') =>
    html`<${Button} class=${className} label=${label} aria-label=${`${label} ${name}`} action=${run} />`;
  const toggleRuns = () => (runs ? setRuns(null) : attempt(async () => setRuns((await call('GET', `/${id}/runs?limit=${RUNS_MAX}`)).runs)));
  return html`<li class="job">
    <h2 dir="auto">${name}<span class=${`job-state ${standing}`}>${STATES[standing] ?? standing}</span></h2>
    ${prompt && prompt !== name ? html`<p class="job-prompt" dir="auto">${prompt}</p>` : null}
    <dl>
      <dt>${t('schedule')}</dt><dd>${timesOf(schedule, timezone)}</dd>
      <dt>${t('conversation')}</dt><dd><a href=${`../#c=${encodeURIComponent(conversation)}`}>${conversation}</a></dd>
      <${When} job=${job} />
      <${Last} job=${job} />
    </dl>
    <div class="choices">
      ${standing === 'done' ? null : act(isActive ? t('pause') : t('resume'), () => attempt(() => call('PATCH', `/${id}`, { state: isActive ? 'paused' : 'active' })))}
      ${act(t('run_now'), () => attempt(() => call('POST', `/${id}/run`)))}
      <${Button} class="quiet small" label=${t('runs')} aria-label=${`${t('runs')} ${name}`} aria-expanded=${String(runs !== null)} action=${toggleRuns} />
      ${act(t('remove'), () => remove(job), 'quiet small dangerous')}
    </div>
    ${runs ? html`<${Runs} runs=${runs} timezone=${timezone} />` : null}
  </li>`;
}

function statusWords({ jobs, problem, isSignedOut }) {
  if (isSignedOut) return t('sign_in_to_the_chat');
  if (problem) return problem;
  if (!jobs) return t('loading');
  return jobs.length ? '' : t('there_are_no_jobs_say');
}

function JobsPage() {
  const { question } = state;
  const words = statusWords(shown);
  return html`<main class="jobs">
      <header class="chat-head">
        <a class="icon" href="../" aria-label=${t('back_to_the_chat')} title=${t('back_to_the_chat')}><${Icon} name="left" /></a>
        <h1 class="title">${t('jobs')}</h1>
      </header>
      <div class="column">
        <p id="status" role="status" class=${shown.problem ? 'error' : 'faint'}>${words}</p>
        <ul id="jobs">${shown.jobs?.map((job) => html`<${Job} key=${job.id} job=${job} />`)}</ul>
      </div>
    </main>
    ${question ? html`<${PageQuestion} key=${question.id} question=${question} />` : null}`;
}

document.title = `${t('jobs')} · Perdure`;
const root = document.getElementById('page');
const draw = () => render(html`<${JobsPage} />`, root);
drawnBy(draw);
draw();
attempt(async () => {});
