// What is said here, from the text box to its place in the transcript.

import * as api from './api.js';
import { Commands } from './composer/commands.js';
import { Draft } from './composer/draft.js';
import { Outbox } from './outbox.js';
import { follow, loadRows } from './reading.js';
import { countJobs } from './sidebar/active.js';
import { list } from './sidebar/list.js';
import { focusText, redraw, state } from './state.js';
import { whenOf } from './words.js';

const SKEW_MS = 60_000;

export const commands = new Commands({ chosen: (text) => draft.type(text), changed: redraw });
export const draft = new Draft(() => {
  commands.typed(draft.isEditing ? '' : draft.text);
  redraw();
});
export const outbox = new Outbox({ post: api.post, taken, changed: redraw });

// A chat to which nothing was said yet.
export const isBlank = () => Boolean(state.current?.isNew) && !outbox.of(state.current.name).length;

// What an answer may need is loaded while its question is written.
export function prepare() {
  loadRows().then(({ loaded }) => loaded()).catch(() => {});
}

export function send(text, attachments = []) {
  prepare();
  const { name, transcript } = state.current;
  if (isBlank()) {
    history.replaceState(null, '', `#c=${encodeURIComponent(name)}`);
    draft.belongTo(name);
  }
  if (!text.startsWith('/') && !transcript.entries.length) list.remember(name, text || attachments[0].name);
  outbox.add(name, text, attachments);
  follow();
}

// The words of a message are changed in the text box; the new ones are asked from its place.
export function edit(turn) {
  const entry = state.current?.transcript.userOf(turn);
  if (!entry) return;
  draft.edit(turn, entry.text);
  focusText();
}

// The last message that the person has said here, if it can be asked again.
export function editLast() {
  const last = state.current?.transcript.entries.findLast((entry) => entry.role === 'user' && entry.turn !== null);
  if (last) edit(last.turn);
  return Boolean(last);
}

export function stopEditing() {
  draft.stopEditing();
  focusText();
  return true;
}

export async function stop() {
  const { turn } = state.current.transcript;
  if (!turn) return;
  // The button is about to go, and must not take the focus with it.
  if (document.activeElement?.id === 'stop' || document.activeElement === document.body) focusText();
  try {
    await api.stop(turn);
    draft.fail('');
  } catch (failure) {
    draft.fail(failure.message);
  }
}

// What was taken back is most often written anew.
const undoneIn = (reply) => /^Undone(?:, \d+ turns)?:\n\n(.+)$/s.exec(reply)?.[1] ?? '';

function taken(item, answer) {
  const conversation = state.opened.get(item.conversation);
  if (answer.command) countJobs();
  if (conversation) {
    if (answer.command) {
      const { message: id, reply, choices } = answer;
      if (reply) conversation.transcript.notice(reply, { id, command: item.text, choices });
      if (reply && conversation === state.current) draft.offer(undoneIn(reply));
    }
    conversation.isNew = false;
    if (conversation === state.current) conversation.open();
    // Its place in the transcript may have been read before this acknowledgement came.
    if (answer.command || conversation.transcript.find(answer.message)) conversation.read();
  }
  redraw();
}

// The gateway shows a message, perhaps before its acknowledgement arrived or instead of one that
// was lost. The tried message with the same words is taken for it until the acknowledgement says.
export function match(name, messages) {
  const items = outbox.of(name);
  const ids = new Set(items.map((item) => item.message).filter(Boolean));
  for (const message of messages) {
    if (message.role !== 'user' || ids.has(message.id)) continue;
    const at = whenOf(message.at)?.getTime() ?? Infinity;
    const isOld = (item) => at < item.at - SKEW_MS;
    const twin = items.find(
      (item) => item.status === 'sending' && item.isTried && !item.message && item.text === message.text && !isOld(item),
    );
    if (!twin) continue;
    ids.add(message.id);
    outbox.note(twin.id, { message: message.id });
  }
}

export function settle(name, shown) {
  for (const item of outbox.of(name)) {
    if (item.status !== 'accepted') continue;
    if (shown.has(item.message)) outbox.drop(item.id);
    else if (item.turn) dropIfSettled(item);
  }
}

// Accepted, and not in the transcript: queued, or undone since.
async function dropIfSettled(item) {
  try {
    const turn = await api.turn(item.turn);
    if (turn.state === 'settled') outbox.drop(item.id);
  } catch (failure) {
    if (failure.status === 404) outbox.drop(item.id);
  }
}
