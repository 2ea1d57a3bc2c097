// The sessions of a conversation, each with a way back, and one of them to read.

import * as api from '../api.js';
import { Blocks } from '../blocks/index.js';
import { entryOf } from '../entries.js';
import { Button, html, useEffect, useLayoutEffect, useRef, useState } from '../ui.js';
import { plainTitle, shortTime } from '../words.js';
import { t } from '../language.js';

const PAGES_MAX = 20;

function useLoaded(load, deps) {
  const [found, setFound] = useState({ value: null, problem: '' });
  useEffect(() => {
    load().then((value) => setFound({ value, problem: '' }), (failure) => setFound({ value: null, problem: failure.message }));
  }, deps);
  return found;
}

const Waiting = ({ problem }) => html`<p role="status" class=${problem ? 'error' : ''}>${problem || t('loading')}</p>`;

export function Sessions({ name, resume, read }) {
  const { value, problem } = useLoaded(() => api.sessions(name), [name]);
  if (!value) return html`<${Waiting} problem=${problem} />`;
  return html`<p>${t('nothing_is_lost_by_new')}</p>
    <ul class="permission-list">${value.sessions.map(({ id, title, live: isLive, active_at: at, opened_at: from }) => html`<li key=${id} class="permission grant">
      <span class="permission-name" dir="auto">${plainTitle(title) || t('untitled_session')}</span>
      <span class="permission-why">${isLive ? `${t('you_are_here')} ` : ''}${t('from_to_to', { from: shortTime(from), to: shortTime(at) })}</span>
      ${isLive ? null : html`<span class="choices"><${Button} class="link" label=${t('read_session')} action=${() => read(id)} /><${Button} class="quiet small" label=${t('go_back')} action=${() => resume(id)} /></span>`}
    </li>`)}</ul>`;
}

// Reads back until the message is found, or to the beginning.
async function pagesTo(session, message) {
  let messages = [];
  let cursor = null;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const found = await api.sessionTranscript(session, cursor);
    messages = [...found.messages, ...messages];
    cursor = found.next;
    if (!cursor || !message || messages.some(({ id }) => id === message)) break;
  }
  return messages.filter(({ text }) => text).map((raw) => entryOf(raw, 0));
}

const SHOWN_MAX = 200;

// Around the message, or the end: a long session is not drawn as a whole.
function around(entries, message) {
  const at = message ? entries.findIndex(({ id }) => id === message) : -1;
  const from = Math.max(0, at < 0 ? entries.length - SHOWN_MAX : at - SHOWN_MAX / 2);
  return entries.slice(from, from + SHOWN_MAX);
}

export function Session({ id, message, resume }) {
  const { value, problem } = useLoaded(() => pagesTo(id, message), [id]);
  const meant = useRef(null);
  useLayoutEffect(() => meant.current?.scrollIntoView({ block: 'center' }), [value]);
  if (!value) return html`<${Waiting} problem=${problem} />`;
  return html`
    <div class="choices"><${Button} class="quiet small" label=${t('go_back_to_this_session')} action=${() => resume(id)} /></div>
    <div class="log">${around(value, message).map((entry) => html`<div key=${entry.id} ref=${entry.id === message ? meant : null} class=${`row ${entry.role}${entry.id === message ? ' found' : ''}`}><${Blocks} message=${entry} /></div>`)}</div>`;
}
