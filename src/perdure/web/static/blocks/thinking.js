// What a model has thought before it answered: folded away, and open while nothing else is there.

import { html } from '../ui.js';
import { Prose } from './text.js';
import { t } from '../language.js';

export function Thinking({ text, isOpen }) {
  return html`<details class="thinking" open=${isOpen}>
    <summary class="meta">${isOpen ? t('thinking') : t('thoughts')}</summary>
    <${Prose} text=${text} isStreaming=${isOpen} />
  </details>`;
}
