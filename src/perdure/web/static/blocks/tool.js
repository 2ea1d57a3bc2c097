// A tool call: one row, which opens to what was sent and what came back.

import { exact, exactJson } from '../exact.js';
import { Button, Icon, html, useLayoutEffect, useRef, useState } from '../ui.js';
import { TOOL_STATES, effectWords, spanWords } from '../words.js';
import { Box, DiffText } from './diff.js';
import { diffLines } from '../diffs.js';
import { File, Files } from './file.js';
import { t } from '../language.js';

const SHOWN_MAX = 2000;
const LINES_MAX = 30;

function cutOf(text) {
  const lines = text.split('\n');
  const cut = lines.slice(0, LINES_MAX).join('\n').slice(0, SHOWN_MAX);
  return cut.length < text.length ? cut : null;
}

function Result({ name, text }) {
  const [isWhole, setWhole] = useState(false);
  const box = useRef(null);
  useLayoutEffect(() => {
    if (isWhole) box.current.focus({ preventScroll: true });
  }, [isWhole]);
  const cut = isWhole ? null : cutOf(text);
  const shown = cut === null ? text : `${cut}…`;
  return html`
    <${Box} label=${t('result_of_name', { name })} class=${diffLines(shown) ? 'diff' : ''} focused=${box}><${DiffText} text=${shown} /><//>
    ${cut === null ? null : html`<${Button} class="link tool-all" label=${t('show_all_count_characters', { count: text.length })} action=${() => setWhole(true)} />`}`;
}

function Inside({ id, name, sent, text, whole, size, effect }) {
  const file = whole ? { id: whole, name: `${name}-${id.slice(-6)}.txt`, mime: 'text/plain', label: t('whole_result_count_characters', { count: size }) } : null;
  return html`<div>
    ${sent ? html`<${Box} label=${t('arguments_of_name', { name })}>${exactJson(sent)}<//>` : null}
    ${text ? html`<${Result} name=${name} text=${text} />` : null}
    ${file ? html`<p class="tool-file"><${File} ...${file} /></p>` : null}
    ${effect?.late_result ? html`<p class="tool-note">${t('what_the_tool_returned_later')}</p><${Result} name=${name} text=${effect.late_result} />` : null}
  </div>`;
}

// Whether a call has happened, of which nobody knows: whoever can find out says so here.
function Effect({ id, effect, mark, summary }) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState('');
  const isOpen = effect.state === 'unknown';
  useLayoutEffect(() => {
    // The button that was pressed is gone with the question.
    if (!isOpen && document.activeElement === document.body && problem !== null) summary.current?.focus({ preventScroll: true });
  }, [isOpen]);
  if (!isOpen) return html`<p class="effect">${effectWords(effect)}</p>`;
  const say = async (happened) => {
    setBusy(true);
    setProblem((await mark(id, happened)) ?? '');
    setBusy(false);
  };
  return html`<p class="effect">${effectWords(effect)}</p>
    <div class="choices">
      <${Button} class="quiet small" label=${t('it_happened')} disabled=${isBusy} action=${() => say(true)} />
      <${Button} class="quiet small" label=${t('it_did_not_happen')} disabled=${isBusy} action=${() => say(false)} />
    </div>
    <p class="error" role="alert">${problem}</p>`;
}

export function ToolCall({ row, acts }) {
  const { key: id, name, sent, text, state, progress, attachments, whole, size, effect, tookMs } = row;
  const summary = useRef(null);
  const shown = effect && effect.state !== 'unknown' ? effect.state : state;
  return html`
    <details>
      <summary ref=${summary}>
        <${Icon} name="tool" /><span class="tool-name" dir="auto">${exact(name)}</span><span class="tool-progress" aria-live="off">${state === 'started' && progress ? ` ${exact(progress)} ` : ' '}</span>${tookMs >= 1000 ? html`<span class="tool-took">${spanWords(tookMs)}</span>` : null}<span class=${`tool-state ${shown ?? ''}`}>${TOOL_STATES[shown] ?? ''}</span>
      </summary>
      <${Inside} id=${id} name=${name} sent=${sent} text=${text && exact(text)} whole=${whole} size=${size} effect=${effect} />
    </details>
    <div class="tool-more">
      <${Files} attachments=${attachments} />
      ${effect ? html`<${Effect} id=${id} effect=${effect} mark=${acts.mark} summary=${summary} />` : null}
    </div>`;
}
