// What a conversation consists of: its messages, notices, calls and questions, as pages of the
// transcript and live events tell of them. Pure.
//
// Entries are replaced, never changed in place, so the view compares them by identity. `tick`
// counts live events: an entry touched after a page was asked for is newer than that page.

const HELD_MAX = 500;
const NONE = [];

// Offsets count code points; a JavaScript string counts UTF-16 units.
function codePoints(text) {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}

const beyond = (text, skip) => (skip ? Array.from(text).slice(skip).join('') : text);

export function entryOf(raw, tick) {
  const { id, role, turn = null, at = null } = raw;
  const text = raw.text ?? '';
  return {
    id, role, text, turn, at, tick,
    length: codePoints(text),
    outcome: raw.outcome ?? null,
    reason: raw.reason ?? null,
    detail: raw.detail ?? '',
    timings: raw.timings ?? null,
    agentState: raw.agent_state ?? null,
    ending: raw.ending ?? '',
    renewsAt: raw.renews_at ?? 0,
    usage: raw.usage ?? null,
    versions: raw.versions ?? NONE,
    answers: raw.answers ?? NONE,
    calls: callsOf(raw.tool_calls),
    name: raw.name || null,
    state: raw.state ?? null,
    origin: raw.origin || null,
    leftOut: raw.left_out || null,
    attachments: raw.attachments ?? [],
    whole: raw.whole || null,
    size: raw.size ?? 0,
    isFull: true,
    held: [],
  };
}

// What the gateway itself has said: a notice, or the reply to a command.
function noticeOf(raw, tick) {
  const { turn: about = null, question = null, choices = [], name = '' } = raw;
  return { ...entryOf({ ...raw, turn: null }, tick), about, question: question || null, choices, command: name ? `/${name}` : null };
}

// A notice as a page has it. Only here is known how its command was typed.
function storedNotice(raw, known, tick) {
  if (known?.isStored && known.text === raw.text) return known;
  const fresh = noticeOf(raw, tick);
  return { ...fresh, command: known?.command ?? fresh.command, isStored: true };
}

export function storedEntry(raw, known, since) {
  if (raw.role === 'notice') return storedNotice(raw, known, since);
  const best = newer(entryOf(raw, since), known, since);
  return best.isStored ? best : { ...best, isStored: true };
}

function callsOf(raw) {
  return (raw ?? []).map((call) => ({
    id: call.id,
    name: call.name,
    arguments: textOf(call.arguments),
  }));
}

export function textOf(value) {
  if (value === undefined || value === null) return '';
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}

const COMPARED = ['role', 'text', 'turn', 'at', 'outcome', 'reason', 'detail', 'name', 'state', 'origin', 'leftOut', 'whole', 'ending'];
const isSame = (a, b) =>
  COMPARED.every((field) => a[field] === b[field]) &&
  JSON.stringify([a.calls, a.attachments, a.versions, a.answers, a.usage]) === JSON.stringify([b.calls, b.attachments, b.versions, b.answers, b.usage]);

// A question as it is told now. What came with it first is not told again with its answer.
export function questionOf({ id, turn, tool, state, ...told }, known, tick) {
  const before = known ?? entryOf({ id, role: 'approval', turn, name: tool, state }, tick);
  return {
    ...before,
    state, tick,
    at: told.asked_at ?? before.at,
    call: told.call || (before.call ?? ''),
    asks: told.kind || (before.asks ?? 'approval'),
    text: told.text || before.text,
    args: textOf(told.arguments ?? told.args) || (before.args ?? ''),
    choices: told.choices ?? before.choices ?? [],
    deadline: told.deadline || (before.deadline ?? 0),
    answer: told.answer ?? before.answer ?? '',
    scope: told.scope ?? before.scope ?? '',
    by: told.answered_by ?? before.by ?? '',
    grants: told.grants ?? before.grants ?? '',
  };
}

export const isLikeQuestion = (a, b) => JSON.stringify({ ...a, tick: 0 }) === JSON.stringify({ ...b, tick: 0 });

export function withDelta(entry, { offset, text }, tick) {
  if (offset > entry.length) {
    if (entry.held.length >= HELD_MAX) return entry;
    return { ...entry, held: [...entry.held, { offset, text }], tick };
  }
  const added = beyond(text, entry.length - offset);
  if (!added) return entry;
  return { ...entry, text: entry.text + added, length: entry.length + codePoints(added), tick };
}

// A page can be older than what the stream has said since it was asked for.
export function newer(fresh, known, since) {
  if (!known) return fresh;
  let best = fresh;
  if (known.tick > since && known.isFull) best = known;
  else if (!fresh.outcome && known.length > fresh.length && known.text.startsWith(fresh.text)) {
    best = { ...fresh, text: known.text, length: known.length, isFull: false };
  }
  // A page is silent about what only the stream says.
  if (best.role === 'tool') {
    const attachments = best.attachments.length ? best.attachments : known.attachments;
    best = { ...best, attachments, state: best.state ?? known.state, whole: best.whole ?? known.whole, size: best.size || known.size };
  }
  // So is an event about the other versions of what it tells.
  if (best === known && (fresh.versions.length || fresh.answers.length)) best = { ...best, versions: fresh.versions, answers: fresh.answers };
  for (const held of known.held) best = withDelta(best, held, known.tick);
  best = best === known || !best.held.length ? best : { ...best, held: [] };
  return isSame(best, known) && !known.held.length ? known : best;
}

// What no page of the transcript holds, or not yet.
export const isLocal = (entry) => (entry.role === 'notice' && !entry.isStored) || entry.role === 'approval';
