// Lists what runs on a schedule, with the next and the last runs, on a page of its own.

import { request } from './api.js';
import { exact } from './exact.js';

const PAGES_MAX = 10;
const list = document.getElementById('jobs');
const status = document.getElementById('status');

const make = (name, text = '', ...inside) => {
  const element = document.createElement(name);
  element.append(...(text ? [text] : []), ...inside);
  return element;
};

const ask = async (method, path, json) => (await request(method, `../api/jobs${path}`, { json })).json();

const timeOf = (at, timeZone) => {
  try {
    return new Date(at).toLocaleString([], { timeZone, dateStyle: 'medium', timeStyle: 'short' });
  } catch {
    return new Date(at).toLocaleString(); // a zone that this browser does not know
  }
};

async function allJobs() {
  const found = [];
  let cursor = null;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const { jobs, next } = await ask('GET', cursor ? `?cursor=${encodeURIComponent(cursor)}` : '');
    found.push(...jobs);
    if (!next) break;
    cursor = next;
  }
  return found;
}

function action(words, job, act) {
  const element = make('button', words);
  element.type = 'button';
  element.setAttribute('aria-label', `${words} ${exact(job.name)}`);
  element.addEventListener('click', async () => {
    try {
      await act();
      await draw();
    } catch (error) {
      status.textContent = error.message;
    }
  });
  return element;
}

function whenOf(job) {
  const next = job.next_runs.map((at) => timeOf(at, job.timezone)).join(', ');
  return next ? `Next: ${next} (${job.timezone})` : `${job.state}${job.why ? `: ${job.why}` : ''}`;
}

function lastOf({ last_at, last_state, last_outcome, timezone }) {
  return last_state ? `Last: ${last_outcome ?? last_state}${last_at ? `, ${timeOf(last_at, timezone)}` : ''}` : 'It has not run yet.';
}

async function showRuns(job, item) {
  const { runs } = await ask('GET', `/${job.id}/runs?limit=10`);
  const lines = runs.map((run) => make('p', `${timeOf(run.due_at, job.timezone)}: ${run.outcome ?? run.state} ${run.reason} ${run.delivery}`));
  item.append(...(lines.length ? lines : [make('p', 'It has not run yet.')]));
}

function itemOf(job) {
  const path = `/${job.id}`;
  const isActive = job.state === 'active';
  const change = action(isActive ? 'Pause' : 'Resume', job, () => ask('PATCH', path, { state: isActive ? 'paused' : 'active' }));
  const runs = make('button', 'Runs');
  runs.type = 'button';
  const item = make(
    'li', '',
    make('h2', exact(job.name)),
    make('p', `${job.schedule} in ${job.conversation}`),
    make('p', exact(job.prompt)),
    make('p', whenOf(job)),
    make('p', lastOf(job)),
    ...(job.state === 'done' ? [] : [change]),
    action('Run now', job, () => ask('POST', `${path}/run`)),
    action('Remove', job, () => ask('DELETE', path)),
    runs,
  );
  runs.addEventListener('click', () => {
    runs.disabled = true;
    showRuns(job, item).catch((error) => { status.textContent = error.message; });
  });
  return item;
}

async function draw() {
  const jobs = await allJobs();
  list.replaceChildren(...jobs.map(itemOf));
  status.textContent = jobs.length ? '' : 'There are no jobs. Say /remind or /jobs add in the chat.';
}

draw().catch((error) => { status.textContent = `${error.message} Sign in to the chat first.`; });
