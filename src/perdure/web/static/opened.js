// The conversations that are open, and which of them is shown.

import * as api from './api.js';
import { Conversation } from './conversation.js';
import { newId } from './outbox.js';
import { beginReading } from './reading.js';
import { draft, isBlank, match, outbox, settle } from './sending.js';
import { list } from './sidebar/list.js';
import { focusText, redraw, state } from './state.js';

const OPEN_MAX = 20;
const CALM_MS = 700;
const REST_MS = 300;

let refused = () => {};

// `leave` is called when the token is not accepted any more.
export function whenRefused(leave) {
  refused = leave;
}

const newName = () => `chat-${Date.now().toString(36)}${newId().slice(0, 4)}`;

function conversationOf(name) {
  const { opened } = state;
  let conversation = opened.get(name);
  if (!conversation) {
    conversation = new Conversation(name, {
      changed: (kind) => changed(conversation, kind),
      appeared: (messages) => match(name, messages),
      stored: (messages) => settle(name, new Set(messages.map(({ id }) => id))),
    });
  }
  opened.delete(name);
  opened.set(name, conversation);
  if (opened.size > OPEN_MAX) opened.delete(opened.keys().next().value);
  return conversation;
}

// Shows what the address asks for: a conversation, a new one, or else the newest.
export function showAsked() {
  if (state.place !== 'chat') return;
  const asked = new URLSearchParams(location.hash.slice(1));
  const name = asked.get('c') ?? (asked.has('new') ? null : list.newest);
  history.replaceState(null, '', name ? `#c=${encodeURIComponent(name)}` : '#new');
  if (name) show(name);
  else showNew();
}

export function startNew() {
  location.hash = 'new';
  state.isDrawerOpen = false;
  redraw();
  focusText();
}

function show(name) {
  if (state.current?.name === name) return;
  state.current?.close();
  state.current = conversationOf(name);
  const { transcript } = state.current;
  const isUnsent = !outbox.of(name).some((item) => item.status === 'accepted');
  if (!transcript.isLoaded && outbox.of(name).length && isUnsent && !list.has(name)) state.current.begin();
  present(name);
  if (!list.has(name) && !outbox.of(name).length) {
    import('./whose.js').then(({ lookWhose }) => lookWhose(state.current)).catch(() => {});
  }
}

function showNew() {
  if (isBlank()) return;
  state.current?.close();
  state.current = conversationOf(newName());
  state.current.begin();
  present(null);
}

function present(draftOf) {
  Object.assign(state, { lostSince: null, answering: null, isDrawerOpen: false });
  draft.show(draftOf);
  state.current.open();
  beginReading();
  lookWhoAnswers();
  noteSeen();
}

let resting = null;

// Something has happened that may have changed who answers; what comes in a burst is read once.
function lookWhoAnswers() {
  clearTimeout(resting);
  resting = setTimeout(() => readWhoAnswers().catch(() => {}), REST_MS);
}

// The gateway knows of no conversation to which nothing was said.
export async function readWhoAnswers() {
  const { current } = state;
  const known = await api.context(current.isNew ? '' : current.name);
  if (current === state.current) state.answering = known;
  redraw();
}

function changed(conversation, kind) {
  if (kind === 'refused') {
    refused();
    return;
  }
  if (kind === 'state') list.named(conversation.name, conversation.transcript.title);
  if (conversation !== state.current) return;
  if (kind === 'outcome' || kind === 'read') lookWhoAnswers();
  if (kind === 'connection') connected(conversation.connection);
  redraw();
}

function connected(connection) {
  if (connection === 'lost') state.lostSince ??= performance.now();
  else if (connection !== 'connecting') state.lostSince = null;
  if (state.lostSince !== null) setTimeout(redraw, CALM_MS);
  if (connection === 'open') outbox.wake();
}

// A blink of the connection is nobody's business.
export const isLost = () => state.lostSince !== null && performance.now() - state.lostSince >= CALM_MS;

let askedIn = null;

// What is looked at is not unread, and nobody needs to be notified of it.
export function noteSeen() {
  const row = state.current && list.find(state.current.name);
  const isAsked = row?.state === 'waiting' && row.turn !== askedIn;
  if ((row?.unread || isAsked) && !document.hidden) {
    if (isAsked) askedIn = row.turn;
    api.shelve(row.name, { seen: true }).catch(() => {});
  }
  redraw();
}

export function forget(name) {
  state.opened.delete(name);
  list.gone(name);
  if (name === state.current?.name) startNew();
}
