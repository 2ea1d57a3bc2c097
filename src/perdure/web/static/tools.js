// Draws tool calls: one row each, which opens to what was sent and what came back. A row keeps its
// nodes, so news of a running call takes neither the focus nor what was opened.

import { diffLines } from './diffs.js';
import { button, make } from './elements.js';
import { exact, exactJson } from './exact.js';
import { icon } from './icons.js';
import { attached, drawMedia } from './media.js';
import { effectWords, TOOL_STATES } from './words.js';

const SHOWN_MAX = 2000;
const LINES_MAX = 30;

function cutOf(text) {
  const lines = text.split('\n');
  const cut = lines.slice(0, LINES_MAX).join('\n').slice(0, SHOWN_MAX);
  return cut.length < text.length ? cut : null;
}

function boxed(label, text) {
  const body = make('pre', 'tool-text', text);
  body.tabIndex = 0;
  body.setAttribute('role', 'group');
  body.setAttribute('aria-label', label);
  return body;
}

function fill(body, text) {
  const lines = diffLines(text);
  body.classList.toggle('diff', lines !== null);
  body.replaceChildren(...(lines ?? [text]));
}

class ToolRow {
  #acts;
  #node;
  #name = make('span', 'tool-name');
  #progress = make('span', 'tool-progress', ' ');
  #state = make('span', 'tool-state');
  #summary = make('summary', '', icon('tool'), this.#name, this.#progress, this.#state);
  #inside = make('div', '');
  #details = make('details', '', this.#summary, this.#inside);
  #outside = make('div', 'tool-more');
  #error = make('p', 'error');
  #isWhole = false;
  #shown = {};

  constructor(node, acts) {
    this.#node = node;
    this.#acts = acts;
    this.#error.setAttribute('role', 'alert');
    this.#progress.setAttribute('aria-live', 'off');
    node.replaceChildren(this.#details, this.#outside);
  }

  show(row) {
    const isNew = (...fields) => fields.some((field) => this.#shown[field] !== row[field]);
    const { name, state, progress, effect } = row;
    if (isNew('name')) this.#name.textContent = exact(name);
    this.#progress.firstChild.nodeValue = state === 'started' && progress ? ` ${exact(progress)} ` : ' ';
    if (isNew('state', 'effect')) {
      const known = effect && effect.state !== 'unknown' ? effect.state : state;
      this.#state.textContent = TOOL_STATES[known] ?? '';
      this.#state.className = `tool-state ${known ?? ''}`;
      this.#node.dataset.state = known ?? '';
    }
    if (isNew('sent', 'text', 'whole', 'effect')) this.#drawInside(row);
    if (isNew('attachments', 'effect')) this.#drawOutside(row, effect);
    this.#shown = row;
  }

  #drawInside({ key, name, sent, text, whole, size, effect }) {
    const parts = [];
    if (sent) parts.push(boxed(`Arguments of ${name}`, exactJson(sent)));
    if (text) parts.push(...this.#result(name, exact(text)));
    if (whole) {
      const holder = make('p', 'tool-file');
      drawMedia(holder, { id: whole, name: `${name}-${key.slice(-6)}.txt`, mime: 'text/plain', label: `Whole result (${size.toLocaleString()} characters)` });
      parts.push(holder);
    }
    if (effect?.late_result) parts.push(make('p', 'tool-note', 'What the tool returned later:'), ...this.#result(name, exact(effect.late_result)));
    this.#inside.replaceChildren(...parts);
  }

  #result(name, text) {
    const cut = this.#isWhole ? null : cutOf(text);
    const body = boxed(`Result of ${name}`, '');
    fill(body, cut === null ? text : `${cut}…`);
    if (cut === null) return [body];
    const all = button(`Show all (${text.length.toLocaleString()} characters)`, 'link tool-all', () => {
      this.#isWhole = true;
      fill(body, text);
      all.remove();
      body.focus({ preventScroll: true });
    });
    return [body, all];
  }

  #drawOutside({ key, attachments }, effect) {
    const isFocused = this.#outside.contains(document.activeElement);
    this.#outside.replaceChildren(...[attached(attachments), ...(effect ? this.#effect(key, effect) : [])].filter(Boolean));
    if (isFocused) this.#summary.focus({ preventScroll: true });
  }

  #effect(key, effect) {
    const words = make('p', 'effect', effectWords(effect));
    if (effect.state !== 'unknown') return [words];
    const choices = make('div', 'choices');
    const say = (label, happened) => button(label, 'quiet small', async (event) => {
      const each = [...choices.querySelectorAll('button')];
      for (const one of each) one.disabled = true;
      this.#error.textContent = (await this.#acts.mark(key, happened)) ?? '';
      for (const one of each) one.disabled = false;
      if (choices.isConnected) event.target.focus({ preventScroll: true });
      else if (document.activeElement === document.body) this.#summary.focus({ preventScroll: true });
    });
    choices.append(say('It happened', true), say('It did not happen', false));
    return [words, choices, this.#error];
  }
}

const rows = new WeakMap();

export function drawTool(node, row, acts) {
  if (!rows.has(node)) rows.set(node, new ToolRow(node, acts));
  rows.get(node).show(row);
}
