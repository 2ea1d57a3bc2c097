// Text that may hold changes of files, which are drawn as such.

import { diffLines, kindOf } from '../diffs.js';
import { exact } from '../exact.js';
import { html } from '../ui.js';

export const DiffLines = ({ lines }) => lines.map((line) => html`<span class=${kindOf(line)}>${`${exact(line)}\n`}</span>`);

export function DiffText({ text }) {
  const lines = diffLines(text);
  return lines === null ? exact(text) : lines.map(({ line, kind }) => html`<span class=${kind}>${`${exact(line)}\n`}</span>`);
}

// One box of exact text, which can be scrolled and focused.
export function Box({ label, class: className = '', children, focused }) {
  return html`<pre class=${`tool-text ${className}`.trim()} tabindex="0" role="group" aria-label=${label} ref=${focused}>${children}</pre>`;
}
