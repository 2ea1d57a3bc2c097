// The gateway's closed sets, said to a person.
import { language, locale, number, t } from './language.js';

export const QUESTION = t('an_answer_here_was_cut');

const REASONS = {
  provider_cut: t('the_model_answer_was_cut'),
  provider_error: t('the_model_server_reported_an'),
  provider_rejected: t('the_model_server_rejected_the'),
  provider_timeout: t('the_model_did_not_answer'),
  provider_unreachable: t('the_model_server_could_not'),
  context_exceeded: t('the_conversation_is_too_long'),
  invalid_request: t('the_request_cannot_be_put'),
  agent_error: t('the_agent_reported_an_error'),
  steps_exceeded: t('it_took_more_steps_than'),
  calls_repeated: t('it_made_the_same_tool'),
  answer_exceeded: t('the_model_said_more_than'),
  turn_timeout: t('it_took_longer_than_one'),
  budget: t('the_budget_is_used_up'),
  policy: t('it_is_not_allowed_here'),
  crash: t('the_gateway_stopped_unexpectedly'),
  drain_timeout: t('the_gateway_was_restarted'),
  shutdown: t('the_gateway_was_shut_down'),
  restart: t('the_gateway_was_restarted'),
  agent_lost: t('agent_program_ended'),
  agent_lost_beside: t('agent_program_ended'),
};

function reasonWords(reason) {
  if (!reason) return '';
  return REASONS[reason] ?? (/\s/.test(reason) ? reason : reason.replaceAll('_', ' '));
}

const ended = (text) => (/[.?!…。？！]$/.test(text) ? text : `${text}.`);

function withReason(lead, words) {
  if (!words) return `${lead}.`;
  return ended(/^\p{Lu}/u.test(words) ? `${lead}. ${words.trimEnd()}` : `${lead}: ${words.trimEnd()}`);
}

// The gateway tells details in English; what is known of the reason is said in the page's language
// before them.
function whyWords(lead, reason, detail) {
  const isForeign = detail && language !== 'en' && reason in REASONS;
  return isForeign ? `${lead}: ${REASONS[reason]}. ${ended(detail.trimEnd())}` : withReason(lead, detail || reasonWords(reason));
}

const renewalWords = (at) => (at ? ` ${t('here_that_is_time', { time: momentWords(at) })}` : '');

// `detail` says more than the reason: to operators all that is known, to others what concerns them.
export function outcomeWords(outcome, reason, { detail = '', ending = '', renewsAt = 0, isSilent = false, isContinued = false, isContinuing = false, isAsked = false } = {}) {
  switch (outcome) {
    case 'done':
      if (reason === 'length') return t('the_answer_reached_the_model');
      if (reason === 'content_filter') return t('the_model_provider_filtered_part');
      return isSilent ? t('the_agent_has_answered_nothing') : '';
    case 'failed': return detail || !ending ? whyWords(t('this_answer_failed'), reason, detail) : ending;
    case 'refused': return whyWords(t('not_answered'), reason, detail) + renewalWords(renewsAt);
    case 'stopped': return t('was_stopped');
    case 'superseded': return t('replaced_by_the_next_message');
    case 'suspended':
      return t('suspended_after_interruptions');
    case 'interrupted':
      if (isContinuing) return t('restarted_and_continuing');
      if (isContinued || isAsked) return t('the_gateway_was_restarted_here');
      return t('interrupted_by_restart');
    default: return outcome;
  }
}

// Said at a message that later requests leave out, because a model's server refused it.
export function leftOutWords(what) {
  if (!what) return '';
  return what === 'pictures' ? t('pictures_here_are_left_out') : t('this_is_left_out_of');
}

export const GROUPS = { pinned: t('pinned'), today: t('today'), yesterday: t('yesterday'), week: t('last_7_days'), month: t('last_30_days'), older: t('older'), archived: t('archived') };

// A title without the signs of markdown, which models like to put there.
export function plainTitle(title) {
  return (title ?? '').replace(/^\s*#{1,6}\s+/, '').replace(/(\*\*|__|`)(.+?)\1/g, '$2').replace(/\[([^\]]+)\]\([^)]*\)/g, '$1').trim();
}

export const TOOL_STATES = {
  started: t('running'), finished: t('done'), failed: t('failed'), refused: t('not_run'), unknown: t('effect_unknown'), happened: t('has_happened'), not_happened: t('has_not_happened'),
};

const LASTING = {
  session: (by) => (by ? t('allowed_by_by_in_this', { by }) : t('allowed_in_this_session')),
  forever: (by) => (by ? t('allowed_by_by_forever', { by }) : t('allowed_forever')),
  time: (by) => (by ? t('allowed_by_by_for_a', { by }) : t('allowed_for_a_while')),
};

// How a question has ended. `by` is learned a moment later.
export function resultWords({ state, by, scope, grants }) {
  switch (state) {
    case 'allowed': {
      const lasting = LASTING[scope]?.(by);
      if (lasting) return grants ? `${lasting}: ${grants}.` : `${lasting}.`;
      return by ? t('allowed_by_by', { by }) : t('was_allowed');
    }
    case 'denied': return by ? t('denied_by_by', { by }) : t('denied');
    case 'answered': return by ? t('by_answered', { by }) : t('answered');
    case 'expired': return t('nobody_answered_in_time');
    case 'undeliverable': return t('this_could_not_be_asked');
    case 'withdrawn': return t('not_needed_any_more_the');
    default: return state;
  }
}

export function effectWords({ state, marked_by: by }) {
  const who = by ? ` ${t('marked_by_by', { by })}` : '';
  if (state === 'happened') return t('it_happened_button') + who;
  if (state === 'not_happened') return t('it_did_not_happen_button') + who;
  return t('this_call_was_cut_short');
}

export function timeLeft(deadline, now) {
  const left_s = Math.ceil((deadline - now) / 1000);
  if (left_s <= 0) return t('no_time_left');
  if (left_s < 100) return t('time_left', { time: inUnits(left_s, 'second') });
  const left_min = Math.round(left_s / 60);
  return t('time_left', { time: left_min < 100 ? inUnits(left_min, 'minute') : inUnits(Math.round(left_min / 60), 'hour') });
}

export function whenOf(at) {
  if (at === null || at === undefined) return null;
  const when = new Date(typeof at === 'number' && at < 1e12 ? at * 1000 : at);
  return Number.isNaN(when.getTime()) ? null : when;
}

const CLOCK = { hour: 'numeric', minute: '2-digit' };

export const clockTime = (when) => when.toLocaleTimeString(locale, CLOCK);
export const wholeTime = (when) => when.toLocaleString(locale, { dateStyle: 'medium', timeStyle: 'medium' });

export function shortTime(at, now = new Date()) {
  const when = whenOf(at);
  if (!when) return '';
  if (when.toDateString() === now.toDateString()) return clockTime(when);
  const sameYear = when.getFullYear() === now.getFullYear();
  return when.toLocaleDateString(locale, { day: 'numeric', month: 'short', ...(sameYear ? {} : { year: 'numeric' }) });
}

// The time, with its day unless that is today.
function momentWords(at) {
  const when = whenOf(at);
  const isToday = when.toDateString() === new Date().toDateString();
  return isToday ? clockTime(when) : when.toLocaleString(locale, { dateStyle: 'medium', timeStyle: 'short' });
}

const STEPS = {
  spawn: t('start_of_the_program'),
  session: t('its_session'),
  bridge: t('its_tools'),
  first_tool: t('first_use_of_a_tool'),
  first_token: t('first_word'),
  generation: t('the_rest_of_the_answer'),
};

const inUnits = (value, unit, digits = 0) =>
  number(value, { style: 'unit', unit, unitDisplay: 'short', minimumFractionDigits: digits, maximumFractionDigits: digits });

export const spanWords = (ms) => (ms < 1000 ? inUnits(Math.round(ms), 'millisecond') : inUnits(ms / 1000, 'second', 1));

// The steps of an answer by an agent's program, with how long each took.
export function timeRows(timings) {
  return Object.entries(STEPS).filter(([step]) => timings[step]).map(([step, words]) => [words, spanWords(timings[step])]);
}

export const shortCount = (count) => number(count, count < 10_000 ? {} : { notation: 'compact', maximumFractionDigits: 0 });

export const percent = (share) => number(share, { style: 'percent', maximumFractionDigits: 0 });

export const shareOf = ({ tokens = 0, window = 0 }) => (window ? Math.min(tokens / window, 1) : 0);
