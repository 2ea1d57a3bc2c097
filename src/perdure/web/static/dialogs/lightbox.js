// A picture as large as the window, over the page.

import { t } from '../language.js';
import { loadStyle } from '../scripts.js';
import { html } from '../ui.js';
import { redraw, state } from '../state.js';
import { Dialog } from './dialog.js';

export const styled = () => loadStyle('./rich.css');

function closed() {
  state.picture = null;
  redraw();
}

export function Lightbox({ source, words }) {
  const close = () => document.getElementById('lightbox').close();
  return html`<${Dialog} id="lightbox" class="lightbox" shown=${source} closed=${closed} aria-label=${words || t('picture')}>
    <button type="button" class="picture" aria-label=${t('close_the_picture')} onClick=${close}><img src=${source} alt=${words} /></button>
  <//>`;
}
