// Text: what a model has written, as markdown, and what a person has said, as it is.

import { copyText } from '../clipboard.js';
import { drawing, isReady, ready } from '../prose.js';
import { drawEmbedded } from './file.js';
import { t } from '../language.js';
import { html, useLayoutEffect, useRef, useState } from '../ui.js';

const SAID_MS = 1500;
const NEVER = { length: Infinity, lines: Infinity };
const LONG_ANSWER = { length: 60_000, lines: 1500 };
const LONG_MESSAGE = { length: 3000, lines: 30 };

function drawn(body, text, isStreaming, mark) {
  // Without the white space at the end, which markdown leaves out too: what was shown never shrinks.
  const markdown = drawing();
  if (!markdown) body.textContent = text.trimEnd();
  else {
    markdown.draw(body, text, { isStreaming });
    drawEmbedded(body);
    if (!isStreaming && markdown.isRich(body)) import('../enrich.js').then(({ enrich }) => enrich(body));
  }
  mark?.(body);
}

// The code beside the button that was pressed.
async function copy({ target }) {
  const source = target.closest?.('[data-copy]');
  if (!source) return;
  const code = source.closest('.code').querySelector('code');
  const isCopied = await copyText(code.textContent);
  // Else it is left selected, so that the keyboard can copy it.
  if (!isCopied) getSelection().selectAllChildren(code);
  source.textContent = isCopied ? t('copied') : t('selected');
  setTimeout(() => {
    source.textContent = t('copy');
  }, SAID_MS);
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
  return html`<div class="prose" dir="auto" ref=${body} onClick=${copy}></div>`;
}

// A text as far as it is shown: of a very long one the beginning, and a button for the rest.
function useFolded(text, { length, lines }) {
  const [isWhole, setWhole] = useState(false);
  if (isWhole) return [text, null];
  const cut = text.length > length || text.split('\n', lines + 1).length > lines ? text.split('\n').slice(0, lines).join('\n').slice(0, length) : text;
  if (cut.length === text.length) return [text, null];
  const more = html`<button type="button" class="link unfold" onClick=${() => setWhole(true)}>${t('show_all_count_characters', { count: text.length })}</button>`;
  return [`${cut}…`, more];
}

export function Text({ text, isStreaming }) {
  const [shown, more] = useFolded(text, isStreaming ? NEVER : LONG_ANSWER);
  return html`<${Prose} text=${shown} isStreaming=${isStreaming} />${more}`;
}

export function Said({ text }) {
  const [shown, more] = useFolded(text, LONG_MESSAGE);
  return html`<div class="bubble" dir="auto">${shown}</div>${more}`;
}
