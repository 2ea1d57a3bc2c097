// Text: what a model has written, as markdown, and what a person has said, as it is.

import { drawEmbedded } from './file.js';
import { html, useLayoutEffect, useRef } from '../ui.js';

let markdown = null;
let loading = null;

// Markdown is loaded with the first text. If that fails, texts are shown as they are.
export const isReady = () => markdown !== null;

export function ready() {
  loading ??= import('../markdown.js').then(
    (found) => {
      markdown = found;
    },
    () => {
      loading = null;
    },
  );
  return loading;
}

function drawn(body, text, isStreaming, mark) {
  if (!markdown) body.textContent = text;
  else {
    markdown.draw(body, text, { isStreaming });
    drawEmbedded(body);
  }
  mark?.(body);
}

export function Prose({ text, isStreaming = false, mark = null }) {
  const body = useRef(null);
  useLayoutEffect(() => {
    let isOver = false;
    drawn(body.current, text, isStreaming, mark);
    if (!isReady()) ready().then(() => isReady() && !isOver && drawn(body.current, text, isStreaming, mark));
    return () => {
      isOver = true;
    };
  }, [text, isStreaming]);
  return html`<div class="prose" dir="auto" ref=${body}></div>`;
}

export const Text = ({ text, isStreaming }) => html`<${Prose} text=${text} isStreaming=${isStreaming} />`;

export const Said = ({ text }) => html`<div class="bubble" dir="auto">${text}</div>`;
