// The gateway's closed sets, said to a person.
import { t } from './language.js';

export const QUESTION = t('An answer here was cut short when the gateway stopped. Continue it, or drop it?');

const REASONS = {
  provider_cut: 'the model’s answer was cut off before its end',
  provider_error: 'the model’s server reported an error',
  provider_rejected: 'the model’s server rejected the request',
  provider_timeout: 'the model did not answer in time',
  provider_unreachable: 'the model’s server could not be reached',
  context_exceeded: 'the conversation is too long for the model',
  invalid_request: 'the request cannot be put to this model',
  agent_error: 'the agent reported an error',
  steps_exceeded: 'it took more steps than one answer may take',
  calls_repeated: 'it made the same tool calls over and over, and got nowhere',
  answer_exceeded: 'the model said more than one answer may hold',
  turn_timeout: 'it took longer than one answer may take',
  budget: 'the budget is used up',
  policy: 'it is not allowed here',
  crash: 'the gateway stopped unexpectedly',
  drain_timeout: 'the gateway was restarted',
  shutdown: 'the gateway was shut down',
  restart: 'the gateway was restarted',
  agent_lost: 'the agent’s program ended unexpectedly',
  agent_lost_beside: 'the agent’s program ended unexpectedly',
};

export function reasonWords(reason) {
  if (!reason) return '';
  return REASONS[reason] ?? (/\s/.test(reason) ? reason : reason.replaceAll('_', ' '));
}

const withReason = (lead, reason) => {
  const words = reasonWords(reason);
  const text = words ? `${lead}: ${words.trimEnd()}` : lead;
  return /[.?!…。？！]$/.test(text) ? text : `${text}.`;
};

const renewalWords = (at) => (at ? ` Here that is ${shortTime(at)}.` : '');

// `detail` says more than the reason: to operators all that is known, to others what concerns them.
export function outcomeWords(outcome, reason, { detail = '', ending = '', renewsAt = 0, isSilent = false, isContinued = false, isContinuing = false, isAsked = false } = {}) {
  switch (outcome) {
    case 'done':
      if (reason === 'length') return t('The answer reached the model’s length limit.');
      if (reason === 'content_filter') return t('The model’s provider filtered part of this answer.');
      return isSilent ? t('The agent has answered nothing.') : '';
    case 'failed': return detail || !ending ? withReason(t('This answer failed'), detail || reason) : ending;
    case 'refused': return withReason(t('Not answered'), detail || reason) + renewalWords(renewsAt);
    case 'stopped': return t('Stopped.');
    case 'superseded': return t('Replaced by the next message.');
    case 'suspended':
      return t('Suspended after repeated interruptions. The next message starts a fresh session; /resume goes back to this one.');
    case 'interrupted':
      if (isContinuing) return t('The gateway was restarted; continuing…');
      if (isContinued || isAsked) return t('The gateway was restarted here.');
      return t('Interrupted: the gateway was restarted. Send a message to go on.');
    default: return outcome;
  }
}

// Said at a message that later requests leave out, because a model's server refused it.
export function leftOutWords(what) {
  if (!what) return '';
  const subject = what === 'pictures' ? 'Pictures here are' : 'This is';
  return `${subject} left out of later requests: the model’s server refused it. `;
}

export const GROUPS = { pinned: t('Pinned'), today: t('Today'), yesterday: t('Yesterday'), week: t('Last 7 days'), month: t('Last 30 days'), older: t('Older'), archived: t('Archived') };

// A title without the signs of markdown, which models like to put there.
export function plainTitle(title) {
  return (title ?? '').replace(/^\s*#{1,6}\s+/, '').replace(/(\*\*|__|`)(.+?)\1/g, '$2').replace(/\[([^\]]+)\]\([^)]*\)/g, '$1').trim();
}

export const TOOL_STATES = {
  started: 'running', finished: 'done', failed: 'failed', refused: t('not run'), unknown: t('effect unknown'), happened: t('has happened'), not_happened: t('has not happened'),
};

const SCOPES = { session: ' in this session', forever: ' forever' };

// How a question has ended. `by` is learned a moment later.
export function resultWords({ state, by, scope, grants }) {
  const who = by ? ` by ${by}` : '';
  switch (state) {
    case 'allowed': {
      const span = SCOPES[scope] ?? (scope === 'time' ? ' for a while' : '');
      return span && grants ? `Allowed${who}${span}: ${grants}.` : `Allowed${who}${span}.`;
    }
    case 'denied': return `Denied${who}.`;
    case 'answered': return by ? `${by} answered: ` : 'Answered: ';
    case 'expired': return t('Nobody answered in time.');
    case 'undeliverable': return t('This could not be asked anywhere.');
    case 'withdrawn': return t('Not needed any more: the turn, or the program that asked, has ended.');
    default: return state;
  }
}

export function effectWords({ state, marked_by: by }) {
  const who = by ? ` Marked by ${by}.` : '';
  if (state === 'happened') return `It happened.${who}`;
  if (state === 'not_happened') return `It did not happen.${who}`;
  return t('This call was cut short. It may or may not have happened.');
}

export function timeLeft(deadline, now) {
  const left_s = Math.ceil((deadline - now) / 1000);
  if (left_s <= 0) return t('no time left');
  if (left_s < 100) return `${left_s} s left`;
  const left_min = Math.round(left_s / 60);
  return left_min < 100 ? `${left_min} min left` : `${Math.round(left_min / 60)} h left`;
}

export function whenOf(at) {
  if (at === null || at === undefined) return null;
  const when = new Date(typeof at === 'number' && at < 1e12 ? at * 1000 : at);
  return Number.isNaN(when.getTime()) ? null : when;
}

export function shortTime(at, now = new Date()) {
  const when = whenOf(at);
  if (!when) return '';
  if (when.toDateString() === now.toDateString()) {
    return when.toLocaleTimeString([], { hour: 'numeric', minute: '2-digit' });
  }
  const sameYear = when.getFullYear() === now.getFullYear();
  return when.toLocaleDateString([], { day: 'numeric', month: 'short', ...(sameYear ? {} : { year: 'numeric' }) });
}

const STEPS = {
  spawn: 'Start of the program',
  session: 'Its session',
  bridge: 'Its tools',
  first_tool: 'First use of a tool',
  first_token: 'First word',
  generation: 'The rest of the answer',
};

export const spanWords = (ms) => (ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`);

// The steps of an answer by an agent's program, with how long each took.
export function timeRows(timings) {
  return Object.entries(STEPS).filter(([step]) => timings[step]).map(([step, words]) => [words, spanWords(timings[step])]);
}

export const shortCount = (count) => (count < 10_000 ? count.toLocaleString() : `${Math.round(count / 1000).toLocaleString()}k`);

export const shareOf = ({ tokens = 0, window = 0 }) => (window ? Math.min(tokens / window, 1) : 0);
