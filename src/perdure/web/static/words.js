// The gateway's closed sets, said to a person.

export const QUESTION = 'An answer here was cut short when the gateway stopped. Continue it, or drop it?';

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
  answer_exceeded: 'the model said more than one answer may hold',
  turn_timeout: 'it took longer than one answer may take',
  budget: 'the budget is used up',
  policy: 'it is not allowed here',
  crash: 'the gateway stopped unexpectedly',
  drain_timeout: 'the gateway was restarted',
  shutdown: 'the gateway was shut down',
  restart: 'the gateway was restarted',
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

// `detail` says more than the reason: to operators all that is known, to others what concerns them.
export function outcomeWords(outcome, reason, { detail = '', isSilent = false, isContinued = false, isContinuing = false, isAsked = false } = {}) {
  switch (outcome) {
    case 'done':
      if (reason === 'length') return 'The answer reached the model’s length limit.';
      if (reason === 'content_filter') return 'The model’s provider filtered part of this answer.';
      return isSilent ? 'The agent has answered nothing.' : '';
    case 'failed': return withReason('This answer failed', detail || reason);
    case 'refused': return withReason('Not answered', reason);
    case 'stopped': return 'Stopped.';
    case 'superseded': return 'Replaced by the next message.';
    case 'suspended':
      return 'Suspended after repeated interruptions. The next message starts a fresh session; /resume goes back to this one.';
    case 'interrupted':
      if (isContinuing) return 'The gateway was restarted; continuing…';
      if (isContinued || isAsked) return 'The gateway was restarted here.';
      return 'Interrupted: the gateway was restarted. Send a message to go on.';
    default: return outcome;
  }
}

// Said at a message that later requests leave out, because a model's server refused it.
export function leftOutWords(what) {
  if (!what) return '';
  const subject = what === 'pictures' ? 'Pictures here are' : 'This is';
  return `${subject} left out of later requests: the model’s server refused it. `;
}

export const TOOL_STATES = { started: 'running', unknown: 'effect unknown' };

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
