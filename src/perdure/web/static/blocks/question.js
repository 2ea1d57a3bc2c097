// What an agent asks: whether a call may run, or something that it wants to know. A card.

import { partsOf, previewOf } from '../diffs.js';
import { exact, exactJson } from '../exact.js';
import { Button, Icon, html, useEffect, useLayoutEffect, useRef, useState } from '../ui.js';
import { resultWords, timeLeft } from '../words.js';
import { Box, DiffLines } from './diff.js';
import { Prose } from './text.js';
import { t } from '../language.js';

const TICK_MS = 1000;
const HALF_AN_HOUR_S = 1800;
const LONG = 1000;
const LINES_MAX = 8;
const IN_SESSION = 'Allow in this session';

// The question without the list of choices and the hint below it: here they are buttons.
function askedIn(text, choices) {
  const from = text.lastIndexOf(choices.length ? '\n\n1. ' : '\n\nSay it, ');
  return from > 0 ? text.slice(0, from) : text;
}

function Block({ label, class: className, size = 0, children }) {
  const count = size > LONG ? ` (${t('count_characters', { count: size })})` : '';
  return html`<div class="block"><div class="block-head">${label + count}</div><${Box} label=${label} class=${className}>${children}<//></div>`;
}

// A screen reader that is told of a new card is not made to read all of it.
function Details({ args, text }) {
  const preview = previewOf(text);
  const words = preview[0]?.startsWith('--- ') ? t('what_would_change') : t('what_would_happen');
  return html`<div class="blocks" aria-live="off">
    <${Block} label=${t('arguments')} class="arguments" size=${args.length}>${exactJson(args)}<//>
    ${preview.length ? html`<${Block} label=${words} class="diff"><${DiffLines} lines=${preview} /><//>` : null}
  </div>`;
}

// The text is changed, not replaced: nobody wants to hear each second.
function Clock({ deadline }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return html`<span class=${deadline - now < 60_000 ? 'time-left soon' : 'time-left'} aria-live="off">${timeLeft(deadline, now)}</span>`;
}

// What the gateway asks in words of its own, asked in the page's language.
const MAY_I = /^May I call \*\*([^\n]+)\*\* with these arguments\?$/m;
const WAS_CUT = /^⚠️ The same call was cut short before [^\n]*$/mu;

const inOurWords = (text) =>
  text.replace(MAY_I, (_, name) => t('may_i_call_name', { name })).replace(WAS_CUT, () => `⚠️ ${t('the_same_call_was_cut')}`);

function Lead({ name, text, choices, isApproval }) {
  const words = (isApproval ? partsOf(text).lead : askedIn(text, choices)).replace(/^(🔐|❓) /u, '');
  const unsaid = () => t('may_i_call_name', { name: (name ?? t('a_tool')).replace(/[*`]/g, '') });
  return html`<${Prose} text=${(isApproval ? inOurWords(words) : words) || unsaid()} />`;
}

function Result({ entry }) {
  const sign = { allowed: 'check', answered: 'check' }[entry.state] ?? 'close';
  return html`<p class="result"><${Icon} name=${sign} /><span>${resultWords(entry)}${entry.state === 'answered' ? html`<q>${exact(entry.answer)}</q>` : null}</span></p>`;
}

function Consents({ give, isBusy, isOffered }) {
  const more = useRef(null);
  const close = (event) => {
    if (event.key !== 'Escape' || !more.current.open) return;
    event.stopPropagation();
    more.current.open = false;
    more.current.firstElementChild.focus();
  };
  const option = (label, className, body) =>
    html`<${Button} class=${className} label=${label} disabled=${isBusy} action=${(event) => give(event.currentTarget, body)} />`;
  return html`
    ${option(t('allow'), 'primary small', { answer: 'allow' })}
    ${isOffered ? option(t('allow_in_this_session'), 'quiet small lasting', { answer: 'allow', scope: 'session' }) : null}
    ${option(t('deny'), 'quiet small', { answer: 'deny' })}
    ${isOffered ? html`<details class="more" ref=${more} onKeyDown=${close}>
      <summary class="quiet small">${t('allow_for_longer')}</summary>
      <div class="more-list">
        ${option(t('allow_for_30_minutes'), 'quiet small', { answer: 'allow', for_s: HALF_AN_HOUR_S })}
        ${option(t('allow_forever'), 'quiet small', { answer: 'allow', scope: 'forever' })}
      </div>
    </details>` : null}`;
}

// An answer may have several lines, such as one for each field of a form.
function Answers({ choices, give, isBusy }) {
  const [typed, setTyped] = useState('');
  const field = useRef(null);
  const submit = (event) => {
    event.preventDefault();
    if (typed.trim()) give(field.current, { answer: typed.trim() });
    else field.current.focus();
  };
  const enter = (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) submit(event);
  };
  return html`
    ${choices.map((choice) => html`<${Button} key=${choice} class="quiet small choice" label=${exact(choice)} disabled=${isBusy} action=${(event) => give(event.currentTarget, { answer: choice })} />`)}
    <form class="answer" onSubmit=${submit}>
      <textarea ref=${field} value=${typed} rows=${Math.min(typed.split('\n').length, LINES_MAX)} disabled=${isBusy} aria-label=${t('your_answer')} autocomplete="off" dir="auto"
        placeholder=${choices.length ? t('or_type_any_answer') : t('type_any_answer')} onInput=${(event) => setTyped(event.currentTarget.value)} onKeyDown=${enter}></textarea>
      <button class="primary small" disabled=${isBusy}>${t('give_answer')}</button>
    </form>`;
}

// What a lasting permission would cover is known a moment after the question. A question that is too
// long for other places offers nothing there, and everything here.
const isLasting = ({ grants, choices }) => choices.includes(IN_SESSION) || (choices.length === 1 && Boolean(grants));

// Sends an answer. While it is on its way the card has the focus, and afterwards whatever had it.
function useAnswer(entry, body, answer) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const returning = useRef(null);
  useLayoutEffect(() => {
    if (!isBusy && returning.current?.isConnected && document.activeElement === body.current) returning.current.focus({ preventScroll: true });
    if (!isBusy) returning.current = null;
  }, [isBusy]);
  const give = async (from, given) => {
    if (body.current.contains(document.activeElement)) body.current.focus({ preventScroll: true });
    setBusy(true);
    setProblem(null);
    const found = await answer(entry.id, given);
    returning.current = found ? from : null;
    setProblem(found);
    setBusy(false);
  };
  return { isBusy, problem, give };
}

export function Question({ entry, acts }) {
  const body = useRef(null);
  const hadFocus = useRef(false);
  const isPending = entry.state === 'pending';
  const isApproval = entry.asks !== 'question';
  const { isBusy, problem, give } = useAnswer(entry, body, acts.answer);
  if (body.current?.contains(document.activeElement)) hadFocus.current = true;
  useLayoutEffect(() => {
    // The controls are gone with the question; the focus stays at the card.
    if (hadFocus.current && document.activeElement === document.body) body.current.focus({ preventScroll: true });
    hadFocus.current = false;
  });
  // Why an answer did not arrive does not matter once there is one.
  const words = isPending || problem?.isLate ? (problem?.message ?? '') : '';
  const covers = isPending && isApproval && isLasting(entry) && entry.grants;
  return html`<div class="card" tabindex="-1" role="group" ref=${body} aria-busy=${String(isBusy)} aria-label=${isApproval ? t('approval_for_name', { name: entry.name ?? t('a_tool') }) : t('question')}>
    <div class="card-head">
      <${Icon} name=${isApproval ? 'shield' : 'question'} />
      <${Lead} name=${entry.name} text=${entry.text} choices=${entry.choices} isApproval=${isApproval} />
      ${isPending && entry.deadline ? html`<${Clock} deadline=${entry.deadline} />` : null}
    </div>
    ${isPending ? null : html`<${Result} entry=${entry} />`}
    ${isApproval && isPending ? html`<${Details} args=${entry.args} text=${entry.text} />` : null}
    ${isApproval && !isPending ? html`<details class="asked"><summary>${t('what_was_asked')}</summary><${Details} args=${entry.args} text=${entry.text} /></details>` : null}
    ${covers ? html`<p class="covers">${t('in_this_session_or_for', { grants: exact(entry.grants) })}</p>` : null}
    ${isPending ? html`<div class="choices">
      ${isApproval ? html`<${Consents} give=${give} isBusy=${isBusy} isOffered=${isLasting(entry)} />` : html`<${Answers} choices=${entry.choices} give=${give} isBusy=${isBusy} />`}
    </div>` : null}
    <p class="error" role="alert">${words}</p>
  </div>`;
}
