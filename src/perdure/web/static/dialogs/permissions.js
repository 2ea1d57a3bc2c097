// What the agent of a conversation may do, and what was allowed for longer, which can be taken back
// here.

import * as api from '../api.js';
import { exact } from '../exact.js';
import { t } from '../language.js';
import { html, useLayoutEffect, useRef, useState } from '../ui.js';
import { shortTime } from '../words.js';

const PAGES_MAX = 10;
const STATES = { allow: t('allowed'), ask: t('asks_you'), deny: t('not_allowed'), off: t('not_available'), 'allow or ask': t('may_ask_you') };

async function allGrants() {
  const found = [];
  let cursor = null;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const { grants, next } = await api.grants(cursor);
    found.push(...grants);
    if (!next) break;
    cursor = next;
  }
  return found;
}

export async function readPermissions(name) {
  const [{ tools }, grants] = await Promise.all([api.tools(name), allGrants()]);
  return { tools, grants };
}

function spanOf({ scope, session, until }, here) {
  if (scope === 'session') return session === here ? t('in_this_session') : t('in_another_session');
  return scope === 'time' ? t('until_time', { time: shortTime(until) }) : t('forever');
}

const Tools = ({ tools }) => html`<ul class="permission-list">${tools.map(({ name, state, why }) => html`<li key=${name} class="permission">
  <span class="permission-name">${exact(name)}</span>
  <span class=${`permission-state ${state.split(' ').at(-1)}`}>${STATES[state] ?? exact(state)}</span>
  <span class="permission-why">${exact(why)}</span>
</li>`)}</ul>`;

function Grant({ grant, session, isSeveral, takeBack }) {
  const [isBusy, setBusy] = useState(false);
  const [person, agent] = [exact(grant.person), exact(grant.agent)];
  const words = `${exact(grant.covers)}, ${spanOf(grant, session)}`;
  const press = async () => {
    setBusy(true);
    await takeBack(grant);
    setBusy(false);
  };
  return html`<li class="permission grant">
    <span class="permission-name">${words}</span>
    <span class="permission-why">${isSeveral ? t('person_to_agent', { person, agent }) : t('to_agent', { agent })}</span>
    <button type="button" class="quiet small" aria-label=${t('take_back_words', { words })} disabled=${isBusy} onClick=${press}>${t('take_back')}</button>
  </li>`;
}

// Takes a permission back. The focus goes on to the next one.
function useTakenBack(list) {
  const [gone, setGone] = useState([]);
  const [words, setWords] = useState('');
  const next = useRef(-1);
  const takeBack = async ({ id }) => {
    try {
      await api.revoke(id);
    } catch (failure) {
      if (failure.status !== 404) {
        setWords(failure.message);
        return;
      }
    }
    const buttons = [...list.current.querySelectorAll('button')];
    next.current = Math.max(0, buttons.indexOf(document.activeElement));
    setGone((known) => [...known, id]);
    setWords(t('taken_back_the_next_such'));
  };
  useLayoutEffect(() => {
    if (!gone.length) return;
    const buttons = [...(list.current?.querySelectorAll('button') ?? [])];
    (buttons[next.current] ?? buttons.at(-1) ?? document.getElementById('close-panel')).focus();
  }, [gone]);
  return { gone, words, takeBack };
}

export function Permissions({ tools, grants, session }) {
  const list = useRef(null);
  const { gone, words, takeBack } = useTakenBack(list);
  const usable = tools.filter(({ state }) => state !== 'off');
  const missing = tools.filter(({ state }) => state === 'off');
  const left = grants.filter(({ id }) => !gone.includes(id));
  const isSeveral = new Set(left.map(({ person }) => person)).size > 1;
  return html`
    ${usable.length ? html`<${Tools} tools=${usable} />` : html`<p>${t('this_agent_has_no_tools')}</p>`}
    ${missing.length ? html`<details class="asked"><summary>${t('not_available_count', { count: missing.length })}</summary><${Tools} tools=${missing} /></details>` : null}
    <h3>${t('allowed_for_longer')}</h3>
    ${left.length
      ? html`<ul class="permission-list" ref=${list}>${left.map((grant) => html`<${Grant} key=${grant.id} grant=${grant} session=${session} isSeveral=${isSeveral} takeBack=${takeBack} />`)}</ul>`
      : html`<p>${t('nothing_each_call_that_needs')}</p>`}
    <p role="status">${words}</p>`;
}
