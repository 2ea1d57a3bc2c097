// From a conversation's state to the rows of the log. Pure; a row is drawn again only when one of
// its fields changed.

import { t } from './language.js';
import { isActive } from './transcript.js';
import { outcomeWords } from './words.js';

const CAN_RETRY = new Set(['failed', 'refused', 'stopped']);
const NONE = [];

function turnFacts(transcript) {
  const facts = new Map();
  for (const entry of transcript.entries) {
    if (entry.turn === null || entry.role === 'notice' || entry.role === 'approval') continue;
    const fact = facts.get(entry.turn) ?? { last: null, isAnswered: false, hasText: false, outcome: null, reason: null, detail: '', ending: '', renewsAt: 0, timings: null, agentState: null, usage: null };
    fact.last = entry;
    if (entry.role !== 'user') {
      fact.isAnswered = true;
      fact.hasText ||= entry.role === 'assistant' && entry.text.trim() !== '';
      fact.outcome = entry.outcome;
      fact.reason = entry.reason;
      fact.detail = entry.detail;
      fact.ending = entry.ending;
      fact.renewsAt = entry.renewsAt;
      fact.usage = entry.usage;
      fact.timings = entry.timings;
      fact.agentState = entry.agentState;
    }
    facts.set(entry.turn, fact);
  }
  for (const [turn, fact] of facts) {
    const told = transcript.outcomes.get(turn);
    if (!told) continue;
    const { outcome, reason, detail, timings, agentState, ending, renewsAt, usage } = told;
    fact.outcome = outcome;
    fact.reason = reason ?? fact.reason;
    fact.detail = detail || fact.detail;
    fact.ending = ending || fact.ending;
    fact.renewsAt = renewsAt || fact.renewsAt;
    fact.usage = usage ?? fact.usage;
    fact.timings = timings ?? fact.timings;
    fact.agentState = agentState ?? fact.agentState;
  }
  return facts;
}

// Turns whose message is known and which nobody has started on, in order.
function waitingTurns(transcript, pending, facts) {
  if (!isActive(transcript) || transcript.queued < 1) return [];
  const turns = transcript.entries
    .filter((entry) => entry.role === 'user' && entry.turn !== null)
    .map((entry) => entry.turn)
    .concat(pending.filter((item) => item.turn).map((item) => item.turn))
    .filter((turn) => turn !== transcript.turn && !facts.get(turn)?.isAnswered && !facts.get(turn)?.outcome);
  return [...new Set(turns)].slice(-transcript.queued);
}

function placeOf(turn, waiting, queued) {
  const at = waiting.indexOf(turn);
  return at < 0 ? null : t('queued_position_place', { place: at + 1 + Math.max(0, queued - waiting.length) });
}

const TODO = '📋 **To do**';
const isTodo = ({ role, text }) => role === 'notice' && text.startsWith(TODO);

const REFUSALS = new Set(['denied', 'expired', 'undeliverable', 'withdrawn']);

function questionAbout({ turn }, { id, name, arguments: args }, transcript) {
  const isAboutIt = ({ call, name: tool, args: shown }) => (call ? call === id : tool === name && shown === args);
  return transcript.entries.find((entry) => entry.role === 'approval' && entry.turn === turn && isAboutIt(entry));
}

function toolRow(key, facts, transcript) {
  const whole = { text: '', progress: '', attachments: NONE, whole: null, size: 0, tookMs: 0, ...facts };
  return { key, kind: 'tool', ...whole, effect: transcript.effects.get(key) ?? null };
}

// Of a call that somebody is asked about, the question shows everything until it runs.
function toolRows(entry, transcript) {
  return entry.calls
    .filter((call) => !transcript.find(call.id) && !questionAbout(entry, call, transcript))
    .map((call) => toolRow(call.id, { name: call.name, sent: call.arguments, state: null }, transcript));
}

// A list of what is to be done is shown once in its turn, where it came first, as it is now. The
// notice that shows it is not in the transcript, but the results of the calls that changed it are.
function todoRows(transcript) {
  const lists = new Map();
  for (const entry of transcript.entries) {
    const isResult = entry.role === 'tool' && entry.name === 'todo' && entry.text.startsWith(TODO);
    if (!isResult && !isTodo(entry)) continue;
    const turn = entry.turn ?? entry.about ?? entry.id;
    const first = lists.get(turn)?.first ?? entry;
    lists.set(turn, { first, row: { key: `todo:${turn}`, kind: 'todo', text: entry.text } });
  }
  return new Map([...lists.values()].map(({ first, row }) => [first, row]));
}

// How long a call took, as far as the transcript tells: since what was said before it in its turn.
function tookOf(entry, transcript) {
  if (!entry.at || entry.state === 'started') return 0;
  const before = transcript.entries.findLast((other) => other.turn === entry.turn && other.id !== entry.id && other.at && other.at <= entry.at);
  return before ? entry.at - before.at : 0;
}

// A question is also told as a notice, for clients without cards.
const isOnCard = (entry, transcript) =>
  entry.role === 'notice' && entry.question !== null && transcript.find(entry.question) !== undefined;

// What asks again is seen at once, and its versions are told at the message.
const ASKING = new Set(['Asking again.', 'Ich frage noch einmal.']);
const isObvious = ({ role, command, text }) => role === 'notice' && /^\/(edit|retry)/.test(command ?? '') && ASKING.has(text);

// That the gateway is about to end is of no interest once it has gone on.
const LEAVING = /^The gateway is about to /;
function isOver({ role, text, about, at }, transcript, facts) {
  if (role !== 'notice' || !LEAVING.test(text)) return false;
  const outcome = about && facts.get(about)?.outcome;
  const isLater = (other) => other.role === 'assistant' && (other.at ?? 0) > (at ?? Infinity);
  return (outcome && outcome !== 'interrupted') || transcript.entries.some(isLater);
}

function callOf(entry, transcript) {
  const calls = transcript.entries.flatMap((other) => (other.turn === entry.turn ? other.calls : []));
  return calls.find((call) => call.id === entry.id);
}

function entryRow(entry, transcript, { waiting, facts }) {
  const base = { key: entry.id, kind: entry.role, entry };
  if (entry.role === 'user') {
    const label = placeOf(entry.turn, waiting, transcript.queued);
    return { ...base, label, canAct: label === null && entry.turn !== null };
  }
  if (entry.role === 'assistant') {
    const isLast = facts.get(entry.turn)?.last === entry;
    const isStreaming = isLast && entry.turn === transcript.turn && !entry.outcome && isActive(transcript);
    const fact = isLast && !isStreaming ? facts.get(entry.turn) : null;
    return { ...base, isStreaming, timings: fact?.timings ?? null, agentState: fact?.agentState ?? null, usage: fact?.usage ?? null, canAct: Boolean(fact) && entry.turn !== null };
  }
  if (entry.role === 'tool') {
    const call = callOf(entry, transcript);
    const { text, progress = '', attachments, whole, size } = entry;
    const isRefused = call && REFUSALS.has(questionAbout(entry, call, transcript)?.state);
    const state = isRefused ? 'refused' : entry.state;
    const name = entry.name ?? call?.name ?? 'tool';
    const tookMs = tookOf(entry, transcript);
    return toolRow(entry.id, { name, sent: call?.arguments ?? '', text, state, progress, attachments, whole, size, tookMs }, transcript);
  }
  if (entry.role === 'notice') {
    // Answered elsewhere, the words of the answer would be a message like any other.
    // A command's reply is about no turn, and what it offers can be chosen at any time.
    const isAsking = entry.about === null || (transcript.choices.length > 0 && entry.about === transcript.turn);
    return { ...base, choices: (isAsking && entry.choices) || NONE };
  }
  return base;
}

// What else the words say one can do, as buttons: the commands in them.
function offersIn(ending) {
  const named = [...ending.matchAll(/\/(compact|new|resume)\b/g)].map(([, name]) => name);
  return [...new Set(named)].join();
}

function outcomeRow(key, turn, outcome, reason, { canRetry = false, hasText = false, ...circumstances }) {
  const text = outcomeWords(outcome, reason, circumstances);
  if (!text) return [];
  const isCut = outcome === 'failed' || (outcome === 'done' && reason === 'length');
  const canContinue = canRetry && hasText && isCut;
  const canAskAgain = CAN_RETRY.has(outcome) || (outcome === 'done' && circumstances.isSilent);
  return [{ key, kind: 'outcome', turn, outcome, text, canContinue, canRetry: canRetry && canAskAgain, offers: canRetry ? offersIn(circumstances.ending ?? '') : '' }];
}

function endRows(entry, transcript, { facts, lastTurn, unseen }) {
  const fact = facts.get(entry.turn);
  if (!fact) return [];
  const isLastTurn = entry.turn === lastTurn;
  const isAsked = transcript.choices.length > 0;
  const isContinuing =
    isActive(transcript) && !isAsked && (entry.turn === transcript.turn || (isLastTurn && transcript.state === 'resume_pending'));
  if (entry.outcome === 'interrupted' && fact.last !== entry) {
    return outcomeRow(`end:${entry.id}`, entry.turn, 'interrupted', entry.reason, { isContinued: true, isContinuing });
  }
  if (fact.last !== entry || !fact.outcome) return [];
  const canRetry = isLastTurn && !unseen.length && !isActive(transcript);
  const { hasText, detail, ending, renewsAt } = fact;
  const isSilent = entry.role !== 'assistant' || (entry.text.trim() === '' && !entry.attachments.length);
  return outcomeRow(`end:${entry.turn}`, entry.turn, fact.outcome, fact.reason, { canRetry, hasText, detail, ending, renewsAt, isSilent, isContinuing, isAsked });
}

function statusRow(transcript, facts) {
  const status = (text, isBusy) => [{ key: 'status', kind: 'status', text, isBusy }];
  const fact = facts.get(transcript.turn);
  switch (transcript.state) {
    case 'running': {
      const isTalking = fact?.last?.role === 'assistant' && !fact.last.outcome && fact.last.text;
      return isTalking ? [] : status(t('working'), true);
    }
    case 'waiting': {
      const isShown = transcript.entries.some(({ role, state }) => role === 'approval' && state === 'pending');
      return isShown ? [] : status(t('waiting_for_an_answer'), false);
    }
    case 'resume_pending':
      return fact?.outcome === 'interrupted' || transcript.choices.length ? [] : status(t('restarted_and_continuing'), true);
    case 'suspended': return status(outcomeWords('suspended'), false);
    default: return [];
  }
}

function pendingRow(item, waiting, queued) {
  const label = item.status === 'sending' ? t('sending') : placeOf(item.turn, waiting, queued);
  const error = item.status === 'refused' ? item.error : null;
  return { key: `out:${item.id}`, kind: 'pending', item, label, error };
}

// Behind a part of the transcript that is not its end, nothing is drawn of what comes later.
export function rowsOf(transcript, outgoing) {
  const { isEnd = true } = transcript;
  const pending = isEnd ? outgoing : NONE;
  const facts = turnFacts(transcript);
  const shown = new Set(transcript.entries.map((entry) => entry.id));
  const unseen = pending.filter((item) => !item.message || !shown.has(item.message));
  const waiting = waitingTurns(transcript, unseen, facts);
  const lastTurn = isEnd && transcript.entries.findLast((entry) => facts.has(entry.turn) && !waiting.includes(entry.turn))?.turn;
  const context = { facts, waiting, lastTurn, unseen };
  const isWaiting = (entry) => entry.role === 'user' && waiting.includes(entry.turn);
  const lists = todoRows(transcript);
  const isUnseen = (entry) => isTodo(entry) || isOnCard(entry, transcript) || isObvious(entry) || isOver(entry, transcript, facts);
  const ownRows = (entry) => (isUnseen(entry) ? NONE : [entryRow(entry, transcript, context)]);
  const rows = transcript.entries.filter((entry) => !isWaiting(entry)).flatMap((entry) => [
    ...ownRows(entry),
    ...(lists.has(entry) ? [lists.get(entry)] : NONE),
    ...toolRows(entry, transcript),
    ...endRows(entry, transcript, context),
  ]);
  const queuedRows = transcript.entries.filter(isWaiting).map((entry) => entryRow(entry, transcript, context));
  const begun = unseen.filter((item) => item.status === 'accepted' && !waiting.includes(item.turn));
  const later = unseen.filter((item) => !begun.includes(item));
  const sent = (items) => items.map((item) => pendingRow(item, waiting, transcript.queued));
  const status = isEnd ? statusRow(transcript, facts) : NONE;
  return [...rows, ...sent(begun), ...status, ...queuedRows, ...sent(later)];
}
