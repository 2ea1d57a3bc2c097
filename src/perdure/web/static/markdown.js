// Model text to DOM. Raw HTML is never parsed as HTML, and nothing here may emit a style
// attribute or a foreign image: the page's policy forbids both.

import { endOfLink } from './links.js';
import { formulas } from './formulas.js';
import { t } from './language.js';
import { loadScript } from './scripts.js';

// The parser is the largest part of the page, and a script of the old kind.
if (!window.markdownit) await loadScript('./vendor/markdown-it.umd.min.js');

const md = window.markdownit({ html: false, linkify: true, breaks: false, typographer: false });
// Else "main.py" is taken for a web site in Paraguay.
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
formulas(md);

// An address in a text without spaces ends where its own script ends, or it would be another host.
function ended(match) {
  const length = match && endOfLink(match.raw);
  if (!match || length === match.raw.length) return match;
  const raw = match.raw.slice(0, length);
  return Object.assign(match, { raw, text: raw, url: raw, lastIndex: match.index + length });
}

const { linkify } = md;
const [found, begun] = [linkify.match.bind(linkify), linkify.matchAtStart.bind(linkify)];
linkify.match = (text) => found(text)?.map(ended) ?? null;
linkify.matchAtStart = (text) => ended(begun(text));

const { escapeHtml } = md.utils;

const plainLink = md.renderer.rules.link_open ?? ((tokens, i, options, env, self) => self.renderToken(tokens, i, options));
// A fragment can carry a token, which would ask whoever follows the link to sign in with it.
function withoutToken(href) {
  if (!href?.includes('#') || !URL.canParse(href, document.baseURI)) return href;
  const { origin, hash } = new URL(href, document.baseURI);
  const isHarmless = origin !== location.origin && !new URLSearchParams(hash.slice(1)).has('token');
  return isHarmless ? href : href.slice(0, href.indexOf('#')) || './';
}

md.renderer.rules.link_open = (tokens, i, options, env, self) => {
  tokens[i].attrSet('href', withoutToken(tokens[i].attrGet('href')));
  tokens[i].attrSet('target', '_blank');
  tokens[i].attrSet('rel', 'noopener noreferrer');
  return plainLink(tokens, i, options, env, self);
};

const isOurs = (source) =>
  /^data:image\//i.test(source) || (URL.canParse(source, document.baseURI) && new URL(source, document.baseURI).origin === location.origin);

md.renderer.rules.image = (tokens, i, options, env, self) => {
  const source = escapeHtml(tokens[i].attrGet('src') ?? '');
  const words = escapeHtml(self.renderInlineAsText(tokens[i].children, options, env));
  // Media need the token, which an <img> cannot send.
  const media = /^\/?api\/media\/([\w.-]+)$/.exec(source);
  if (media) return `<span class="media" data-media="${media[1]}" data-name="${words}"></span>`;
  if (isOurs(tokens[i].attrGet('src'))) return `<img src="${source}" alt="${words}" loading="lazy">`;
  const href = escapeHtml(withoutToken(tokens[i].attrGet('src') ?? ''));
  return `<a href="${href}" target="_blank" rel="noopener noreferrer">${words || source}</a>`;
};

const code = (text, language) =>
  `<div class="code"><div class="code-head"><span>${escapeHtml(language)}</span>` +
  `<button type="button" class="copy" data-copy>${escapeHtml(t('copy'))}</button></div>` +
  `<pre tabindex="0"><code${language ? ` data-language="${escapeHtml(language.toLowerCase())}"` : ''}>${escapeHtml(text.replace(/\n$/, ''))}</code></pre></div>`;
md.renderer.rules.fence = (tokens, i) => code(tokens[i].content, tokens[i].info.trim().split(/\s+/)[0]);
md.renderer.rules.code_block = (tokens, i) => code(tokens[i].content, '');

const aligned = (tokens, i, options, env, self) => {
  const at = tokens[i].attrIndex('style');
  if (at >= 0) tokens[i].attrs[at] = ['class', tokens[i].attrs[at][1].replace('text-align:', 'align-')];
  return self.renderToken(tokens, i, options);
};
md.renderer.rules.th_open = aligned;
md.renderer.rules.td_open = aligned;
md.renderer.rules.table_open = () => '<div class="table" tabindex="0"><table>';
md.renderer.rules.table_close = () => '</table></div>';

function openFence(text) {
  let open = null;
  for (const line of text.split('\n')) {
    const [, mark, rest] = /^ {0,3}(`{3,}|~{3,})(.*)$/.exec(line) ?? [];
    if (!mark) continue;
    if (!open) open = mark;
    else if (mark[0] === open[0] && mark.length >= open.length && !rest.trim()) open = null;
  }
  return open;
}

// A link whose address is still arriving is shown as its words, and a bare address as text: else the
// page would offer an address that nobody has meant.
function healLinks(text) {
  const cut = /!?\[([^\]\n]*)\]\([^)\s]*$/.exec(text);
  if (cut) return text.slice(0, cut.index) + cut[1];
  return text.replace(/(https?:)\/\/([^\s)\]>]*)$/i, '$1\\//$2');
}

// Text that is still arriving ends anywhere. What is surely the beginning of a marker is held
// back or closed, so that the page does not flicker between two readings of it.
function heal(text) {
  const fence = openFence(text);
  if (fence) {
    const whole = text.replace(/\n {0,3}(`{1,}|~{1,})$/, '\n');
    return `${whole.trimEnd()}\n${fence}`;
  }
  let healed = text.replace(/(^|\n) {0,3}(`{1,2}|~{1,2})$/, '$1');
  const paragraph = healed.slice(healed.lastIndexOf('\n\n') + 1);
  const spans = paragraph.match(/`+/g) ?? [];
  if (spans.length % 2) return healed + spans.at(-1);
  healed = healLinks(healed);
  const strong = paragraph.replace(/`[^`]*`/g, '').match(/\*\*/g) ?? [];
  if (strong.length % 2) healed = /\*\*\s*$/.test(healed) ? healed.replace(/\*\*\s*$/, '') : `${healed.trimEnd()}**`;
  return healed;
}

// Numbers stand for the notes, without links: an address in this page names a conversation.
if (!window.markdownitFootnote) await loadScript('./vendor/markdown-it-footnote.min.js');
md.use(window.markdownitFootnote);
Object.assign(md.renderer.rules, {
  footnote_ref: (tokens, i) => `<sup class="note">${tokens[i].meta.id + 1}</sup>`,
  footnote_block_open: () => '<ol class="footnotes">',
  footnote_block_close: () => '</ol>',
  footnote_open: () => '<li>',
  footnote_close: () => '</li>',
  footnote_anchor: () => '',
});

function blocks(text) {
  const env = {};
  const found = [];
  let group = [];
  let depth = 0;
  for (const token of md.parse(text, env)) {
    group.push(token);
    depth += token.nesting;
    if (depth === 0) {
      found.push(md.renderer.render(group, md.options, env));
      group = [];
    }
  }
  return found;
}

const TASK = /^\[([ xX])\]\s+/;

// Items that begin with a box are tasks; the box only shows what the text says.
function tasks(root) {
  for (const item of root.querySelectorAll('li')) {
    const first = item.firstElementChild?.tagName === 'P' ? item.firstElementChild.firstChild : item.firstChild;
    const [mark, sign] = (first?.nodeType === Node.TEXT_NODE && TASK.exec(first.nodeValue)) || [];
    if (!mark) continue;
    first.nodeValue = first.nodeValue.slice(mark.length);
    const box = document.createElement('input');
    Object.assign(box, { type: 'checkbox', disabled: true, checked: sign !== ' ' });
    box.setAttribute('aria-label', sign === ' ' ? t('task_open') : t('task_done'));
    first.before(box, ' ');
    item.classList.add('task');
  }
}

function elementOf(html) {
  const template = document.createElement('template');
  template.innerHTML = html;
  tasks(template.content);
  return template.content.firstElementChild ?? document.createElement('p');
}

const RICH = 'code[data-language]:not(.coloured), .math:empty';

// Tells whether something here is still to be coloured or set.
export const isRich = (element) => element.querySelector(RICH) !== null;

const drawn = new WeakMap();

// Only blocks that changed are replaced, so a selection in finished text survives streaming.
export function draw(element, text, { isStreaming = false } = {}) {
  if (!drawn.has(element)) element.replaceChildren();
  const before = drawn.get(element) ?? [];
  const after = blocks(isStreaming ? heal(text) : text);
  after.forEach((html, i) => {
    if (before[i] === html) return;
    if (i < before.length) element.children[i].replaceWith(elementOf(html));
    else element.append(elementOf(html));
  });
  while (element.children.length > after.length) element.lastElementChild.remove();
  drawn.set(element, after);
}
