// Draws what an agent asks: whether a call may run, or something that it wants to know. An open card
// keeps its nodes, so a redraw takes neither the focus nor what is being typed.

import { diffLine, partsOf, previewOf } from './diffs.js';
import { button, make } from './elements.js';
import { exact, exactJson } from './exact.js';
import { icon } from './icons.js';
import { draw } from './markdown.js';
import { resultWords, timeLeft } from './words.js';

const TICK_MS = 1000;
const HALF_AN_HOUR_S = 1800;
const LONG = 1000;
const LINES_MAX = 8;
const IN_SESSION = 'Allow in this session';

// The question without the list of choices and the hint below it: here they are buttons.
export function askedIn(text, choices) {
  const from = text.lastIndexOf(choices.length ? '\n\n1. ' : '\n\nSay it, ');
  return from > 0 ? text.slice(0, from) : text;
}

function block(label, className, size, ...children) {
  const body = make('pre', `tool-text ${className}`, ...children);
  body.tabIndex = 0;
  body.setAttribute('role', 'group');
  body.setAttribute('aria-label', label);
  const count = size > LONG ? ` (${size.toLocaleString()} characters)` : '';
  return make('div', 'block', make('div', 'block-head', label + count), body);
}

function details(entry) {
  const preview = previewOf(entry.text);
  const parts = [block('Arguments', 'arguments', entry.args.length, exactJson(entry.args))];
  const isChange = preview[0]?.startsWith('--- ');
  if (preview.length) parts.push(block(isChange ? 'What would change' : 'What would happen', 'diff', 0, ...preview.map(diffLine)));
  // A screen reader that is told of a new card is not made to read all of it.
  const all = make('div', 'blocks', ...parts);
  all.setAttribute('aria-live', 'off');
  return all;
}

class Card {
  #node;
  #acts;
  #body = make('div', 'card');
  #error = make('p', 'error');
  #choices = null;
  #clock = null;
  #covers = null;
  #entry = null;
  #isLate = false;

  constructor(node, acts) {
    this.#node = node;
    this.#acts = acts;
    this.#body.tabIndex = -1;
    this.#body.setAttribute('role', 'group');
    this.#error.setAttribute('role', 'alert');
    node.replaceChildren(this.#body);
  }

  show(entry) {
    const known = this.#entry;
    this.#entry = entry;
    const isSame = known && ['state', 'text', 'args', 'answer', 'scope', 'by', 'deadline'].every((field) => known[field] === entry[field]);
    if (!isSame || String(known.choices) !== String(entry.choices)) this.#build(entry);
    this.#cover(entry);
  }

  tick() {
    if (!this.#clock) return;
    const words = timeLeft(this.#entry.deadline, Date.now());
    // The text is changed, not replaced: nobody wants to hear each second.
    if (this.#clock.firstChild.nodeValue !== words) this.#clock.firstChild.nodeValue = words;
    this.#clock.classList.toggle('soon', this.#entry.deadline - Date.now() < 60_000);
  }

  #build(entry) {
    const isFocused = this.#body.contains(document.activeElement);
    const isPending = entry.state === 'pending';
    const isApproval = entry.asks !== 'question';
    this.#node.dataset.state = entry.state;
    // Why an answer did not arrive does not matter once there is one.
    if (!isPending && !this.#isLate) this.#error.textContent = '';
    this.#body.setAttribute('aria-label', isApproval ? `Approval for ${entry.name ?? 'a tool'}` : 'Question');
    this.#clock = isPending && entry.deadline ? make('span', 'time-left', ' ') : null;
    this.#clock?.setAttribute('aria-live', 'off');
    this.#covers = isPending && isApproval ? make('p', 'covers') : null;
    this.#choices = isPending ? make('div', 'choices', ...(isApproval ? this.#consents(entry) : this.#answers(entry))) : null;
    const head = make('div', 'card-head', icon(isApproval ? 'shield' : 'question'), this.#lead(entry, isApproval), this.#clock);
    const shown = isApproval ? details(entry) : null;
    const parts = isPending ? [shown, this.#covers, this.#choices] : [this.#result(entry), shown && this.#folded(shown)];
    this.#body.replaceChildren(head, ...parts.filter(Boolean), this.#error);
    this.tick();
    if (isFocused) this.#body.focus({ preventScroll: true });
  }

  #lead(entry, isApproval) {
    const lead = make('div', 'prose');
    const text = isApproval ? partsOf(entry.text).lead : askedIn(entry.text, entry.choices);
    draw(lead, text.replace(/^(🔐|❓) /u, '') || `May I call **${(entry.name ?? 'a tool').replace(/[*`]/g, '')}**?`);
    return lead;
  }

  #result(entry) {
    const line = make('p', 'result', icon({ allowed: 'check', answered: 'check' }[entry.state] ?? 'close'), make('span', '', resultWords(entry)));
    if (entry.state === 'answered') line.lastChild.append(make('q', '', exact(entry.answer)));
    return line;
  }

  #folded(shown) {
    return make('details', 'asked', make('summary', '', 'What was asked'), shown);
  }

  #consents({ id }) {
    const give = (label, className, body) => button(label, className, (event) => this.#answer(event.target, id, body));
    const more = make(
      'details', 'more', make('summary', 'quiet small', 'Allow for longer'),
      make(
        'div', 'more-list',
        give('Allow for 30 minutes', 'quiet small', { answer: 'allow', for_s: HALF_AN_HOUR_S }),
        give('Allow forever', 'quiet small', { answer: 'allow', scope: 'forever' }),
      ),
    );
    more.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape' || !more.open) return;
      more.open = false;
      more.firstChild.focus();
    });
    return [
      give('Allow', 'primary small', { answer: 'allow' }),
      give(IN_SESSION, 'quiet small lasting', { answer: 'allow', scope: 'session' }),
      give('Deny', 'quiet small', { answer: 'deny' }),
      more,
    ];
  }

  #answers({ id, choices }) {
    const words = choices.map((choice) => button(exact(choice), 'quiet small choice', (event) => this.#answer(event.target, id, { answer: choice })));
    const field = make('textarea', '');
    field.placeholder = choices.length ? 'Or type any answer' : 'Type any answer';
    field.setAttribute('aria-label', 'Your answer');
    field.autocomplete = 'off';
    // An answer may have several lines, such as one for each field of a form.
    const fit = () => (field.rows = Math.min(field.value.split('\n').length, LINES_MAX));
    field.addEventListener('input', fit);
    fit();
    const submit = make('button', 'primary small', 'Answer');
    const form = make('form', 'answer', field, submit);
    field.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (field.value.trim()) this.#answer(field, id, { answer: field.value.trim() });
      else field.focus();
    });
    return [...words, form];
  }

  // What a lasting permission would cover is known a moment after the question. A question that is
  // too long for other places offers nothing there, and everything here.
  #cover({ grants, choices }) {
    if (!this.#covers) return;
    const isOffered = choices.includes(IN_SESSION) || (choices.length === 1 && Boolean(grants));
    this.#covers.hidden = !isOffered || !grants;
    const words = grants ? `In this session or for longer, this covers: ${exact(grants)}.` : '';
    if (this.#covers.textContent !== words) this.#covers.textContent = words;
    for (const each of this.#choices.querySelectorAll('.lasting, .more')) each.hidden = !isOffered;
  }

  async #answer(from, id, body) {
    if (this.#body.contains(document.activeElement)) this.#body.focus({ preventScroll: true });
    const controls = [...this.#choices.querySelectorAll('button, textarea')];
    for (const each of controls) each.disabled = true;
    this.#body.setAttribute('aria-busy', 'true');
    this.#error.textContent = '';
    const problem = await this.#acts.answer(id, body);
    this.#body.setAttribute('aria-busy', 'false');
    this.#isLate = problem?.isLate ?? false;
    this.#error.textContent = problem?.message ?? '';
    for (const each of controls) each.disabled = false;
    if (problem && document.activeElement === this.#body && from.isConnected) from.focus({ preventScroll: true });
  }
}

const cards = new Map();

setInterval(() => {
  for (const [node, card] of cards) {
    if (node.isConnected) card.tick();
    else cards.delete(node);
  }
}, TICK_MS);

const known = new WeakMap();

export function drawQuestion(node, { entry }, acts) {
  const card = known.get(node) ?? new Card(node, acts);
  known.set(node, card);
  cards.set(node, card);
  card.show(entry);
}
