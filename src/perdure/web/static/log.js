// Draws the rows of a conversation, reusing the nodes of rows that did not change.

import { button, make } from './elements.js';
import { icon } from './icons.js';
import { draw } from './markdown.js';
import { attached, drawMedia } from './media.js';
import { drawQuestion } from './questions.js';
import { isSameRow } from './rows.js';
import { drawTool } from './tools.js';
import { leftOutWords, timeRows, whenOf } from './words.js';

function time(at) {
  const when = whenOf(at);
  if (!when) return null;
  const element = make('time', '', when.toLocaleTimeString([], { hour: 'numeric', minute: '2-digit' }));
  element.dateTime = when.toISOString();
  element.title = when.toLocaleString();
  return element;
}

function times(timings) {
  const rows = timeRows(timings).flatMap(([step, took]) => [make('dt', '', step), make('dd', '', took)]);
  return make('details', 'times', make('summary', 'meta', 'Where the time went'), make('dl', '', ...rows));
}

function said(text, attachments, footer) {
  const bubble = text ? make('div', 'bubble', text) : null;
  return [make('span', 'visually-hidden', 'You said:'), attached(attachments), bubble, footer];
}

// Lists come as lines of two columns; the columns are drawn to fit the screen.
function told(text) {
  const rows = text.split('\n').map((line) => /^(\S.*?) {2,}(\S.*)$/.exec(line) ?? line);
  if (typeof rows[0] === 'string') return [make('span', 'notice-text', text)];
  const blocks = [];
  for (const row of rows) {
    if (typeof row === 'string') blocks.push(make('span', 'notice-text', row));
    else {
      if (blocks.at(-1)?.tagName !== 'DL') blocks.push(make('dl', 'notice-list'));
      blocks.at(-1).append(make('dt', '', row[1]), make('dd', '', row[2]));
    }
  }
  return blocks;
}

// The marks with which the gateway writes a list of what is still to be done.
const TODO_STATES = { '☐': 'open', '▶': 'doing', '☑': 'done', '✖': 'dropped' };

const DRAW = {
  user(node, { entry, label }) {
    const shown = label ?? leftOutWords(entry.leftOut);
    node.replaceChildren(...said(entry.text, entry.attachments, make('div', 'meta', shown, label ? null : time(entry.at))).filter(Boolean));
  },

  pending(node, { item, label, error }, acts) {
    const footer = make('div', 'meta', label ?? '');
    if (error) {
      footer.className = 'meta error';
      footer.setAttribute('role', 'alert');
      footer.append(make('span', '', error), button('Try again', 'link', () => acts.sendAgain(item.id)), button('Discard', 'link', () => acts.discard(item.id)));
    }
    node.classList.toggle('unsent', item.status === 'sending');
    node.replaceChildren(...said(item.text, item.attachments, footer).filter(Boolean));
  },

  assistant(node, { entry, isStreaming, timings }) {
    let body = node.querySelector('.prose');
    if (!body) {
      body = make('div', 'prose');
      node.append(make('span', 'visually-hidden', entry.origin ? '' : 'Answer:'), body);
      if (entry.origin) node.prepend(make('div', 'meta', 'Sent from elsewhere'));
    }
    draw(body, entry.text, { isStreaming });
    for (const holder of body.querySelectorAll('.media[data-media]:empty')) {
      drawMedia(holder, { id: holder.dataset.media, name: holder.dataset.name });
    }
    const files = attached(entry.attachments);
    node.querySelector('.attached')?.remove();
    if (files) node.append(files);
    node.classList.toggle('streaming', isStreaming);
    node.querySelector('.times')?.remove();
    if (timings) node.append(times(timings));
    node.hidden = !entry.text && !files;
    // Screen readers read the answer when it is whole, not at each word.
    node.setAttribute('aria-busy', String(isStreaming));
  },

  tool: drawTool,

  approval: drawQuestion,

  todo(node, { text }) {
    let body = node.querySelector('.prose');
    if (!body) {
      body = make('div', 'prose');
      node.replaceChildren(body);
    }
    draw(body, text);
    for (const item of body.querySelectorAll('li')) item.className = TODO_STATES[[...item.textContent.trim()][0]] ?? '';
  },

  notice(node, { entry, choices: words }, acts) {
    // The words are the answer on every surface; a click only types them.
    const choices = words.map((word) => button(word[0].toUpperCase() + word.slice(1), 'quiet small', () => {
      for (const each of node.querySelectorAll('button')) each.disabled = true;
      acts.say(word);
    }));
    node.classList.toggle('long', entry.text.includes('\n'));
    node.replaceChildren(
      ...[
        entry.command ? make('code', '', entry.command) : null,
        ...told(entry.text),
        choices.length ? make('div', 'choices', ...choices) : null,
      ].filter(Boolean),
    );
  },

  outcome(node, { outcome, text, turn, canContinue, canRetry }, acts) {
    node.dataset.outcome = outcome;
    const parts = [outcome === 'failed' || outcome === 'refused' ? icon('alert') : null, make('span', '', text)];
    const offer = (label, act) => {
      const offered = button(label, 'link', () => {
        offered.disabled = true;
        act();
      });
      parts.push(offered);
    };
    if (canContinue) offer('Continue', acts.goOn);
    if (canRetry) offer('Retry', acts.retry);
    if (outcome === 'failed') {
      const id = make('span', 'meta', turn);
      id.title = 'The operator finds out why with this id';
      parts.push(id);
    }
    node.replaceChildren(...parts.filter(Boolean));
  },

  status(node, { text, isBusy }) {
    node.replaceChildren(...(isBusy ? [make('span', 'dots', make('i'), make('i'), make('i'))] : []), make('span', isBusy && text === 'Working…' ? 'visually-hidden' : '', text));
  },
};

export class Log {
  #root;
  #acts;
  #drawn = new Map();

  constructor(root, acts) {
    this.#root = root;
    this.#acts = acts;
    root.addEventListener('click', (event) => copyFrom(event.target.closest?.('[data-copy]')));
  }

  clear() {
    this.#drawn.clear();
    this.#root.replaceChildren();
  }

  draw(rows) {
    const kept = new Map();
    for (const row of rows) kept.set(row.key, this.#nodeOf(row));
    for (const [key, { node }] of this.#drawn) if (!kept.has(key)) node.remove();
    let place = this.#root.firstElementChild;
    for (const { node } of kept.values()) {
      if (node === place) place = place.nextElementSibling;
      else this.#root.insertBefore(node, place);
    }
    this.#drawn = kept;
  }

  #nodeOf(row) {
    const known = this.#drawn.get(row.key);
    if (known && isSameRow(known.row, row)) return known;
    const isReusable = known && known.row.kind === row.kind;
    const node = isReusable ? known.node : make('div', `row ${row.kind}`);
    if (known && !isReusable) known.node.remove();
    node.dataset.key = row.key;
    DRAW[row.kind]?.(node, row, this.#acts);
    return { row, node };
  }
}

async function copyFrom(source) {
  if (!source) return;
  const code = source.closest('.code').querySelector('code');
  try {
    await navigator.clipboard.writeText(code.textContent);
    source.textContent = 'Copied';
  } catch {
    // No clipboard outside a secure context: leave it selected, so that the keyboard can copy it.
    getSelection().selectAllChildren(code);
    source.textContent = 'Selected';
  }
  setTimeout(() => {
    source.textContent = 'Copy';
  }, 1500);
}
