// Which part of the conversation is read: it follows the newest message, or stays where it is.

import { isReady, ready } from './prose.js';
import { loadStyle } from './scripts.js';
import { Scroller } from './scroll.js';
import { Span, partOf } from './span.js';
import { drawNow, redraw, state } from './state.js';
import { isActive } from './transcript.js';
import { html } from './ui.js';

const LATER_PX = 400;
const FOUND_MS = 2500;
const SEARCHED_MAX = 1000;

const span = new Span();
// Whether the entries wait until they can be drawn as they are meant.
let isHeldBack = false;
export const scroller = new Scroller({ top: showEarlier, bottom: showLater, followed });

export function follow() {
  scroller.follow();
}

// What draws the rows of a conversation is loaded with the first one.
let log = null;
let loading = null;

export function loadRows() {
  ready();
  loading ??= Promise.all([import('./log.js'), loadStyle('./log.css')]).then(
    ([found]) => {
      log = found;
      redraw();
      return found;
    },
    (problem) => {
      loading = null;
      throw problem;
    },
  );
  return loading;
}

export const Rows = (props) => log && html`<${log.Rows} ...${props} />`;

export function beginReading() {
  if (!state.current.isNew) loadRows().catch(() => {});
  span.follow();
  scroller.follow();
}

// What is followed shows its newest part, but fills the screen.
function showEarlier() {
  if (!state.current || isHeldBack) return;
  const { entries } = state.current.transcript;
  if (scroller.isFollowing && span.isFull(entries)) return;
  if (!scroller.isFollowing && span.earlier(entries)) redraw();
  else state.current.older();
}

// What is near the end of what is drawn. True: there is more.
function showLater(rest) {
  if (!state.current) return false;
  const { entries } = state.current.transcript;
  if (rest > LATER_PX || span.of(entries).end === entries.length) return false;
  if (span.later(entries)) redraw();
  return true;
}

function followed(isFollowing) {
  if (isFollowing) span.follow();
  else if (state.current) span.hold(state.current.transcript.entries);
  redraw();
}

let isProseTried = false;

function canDraw(transcript, pending) {
  if (log) return isProseReady(transcript, pending);
  loadRows().catch(() => {});
  return false;
}

// Nobody wants to see a page of text twice, first as it is and then as it is meant. But what comes
// now is shown now.
function isProseReady(transcript, pending) {
  if (isReady() || isProseTried) return true;
  if (isActive(transcript) || pending.length) {
    ready();
    return true;
  }
  ready().then(() => {
    isProseTried = true;
    redraw();
  });
  return false;
}

const NONE = { rows: [], isEmpty: false };

// The rows that are drawn, and whether there is nothing to draw.
export function shown({ transcript, problem }, pending) {
  const isAnything = transcript.entries.length > 0 || pending.length > 0 || isActive(transcript);
  isHeldBack = isAnything && !canDraw(transcript, pending);
  if (isHeldBack) return NONE;
  const rows = isAnything ? log.rowsOf(partOf(transcript, span.of(transcript.entries)), pending) : [];
  return { rows, isEmpty: !rows.length && transcript.isLoaded && !problem };
}

// Shows a message in its place. False: it does not stand there any more.
export async function jumpTo(conversation, message, session) {
  const { transcript } = conversation;
  await conversation.loaded();
  while (conversation === state.current && !transcript.find(message) && !transcript.isWhole && session === transcript.session) {
    if (!(await conversation.older(SEARCHED_MAX))) break;
  }
  if (conversation !== state.current) return true;
  if (!transcript.find(message)) return false;
  scroller.leave();
  span.around(transcript.entries, message);
  drawNow();
  const row = document.querySelector(`#log [data-key="${CSS.escape(message)}"]`);
  row?.scrollIntoView({ block: 'center' });
  row?.classList.add('found');
  setTimeout(() => row?.classList.remove('found'), FOUND_MS);
  return true;
}
