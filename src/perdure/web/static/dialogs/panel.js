// A dialog of the page, which shows one thing at a time. What is shown in it is loaded when it is
// asked for, like its style sheet.

import { t } from '../language.js';
import { loadStyle } from '../scripts.js';
import { drawNow, redraw, state } from '../state.js';
import { Icon, html } from '../ui.js';
import { Dialog } from './dialog.js';

const styled = () => Promise.all([loadStyle('./log.css'), loadStyle('./dialogs/panel.css')]);

let shown = 0;

export function showPanel(title, content) {
  styled();
  shown += 1;
  state.panel = { title, content };
  drawNow();
  return shown;
}

// Shows what was loaded for what is shown, unless something else is shown by now, or nothing.
export function replacePanel(which, title, content) {
  if (which === shown && document.getElementById('panel')?.open) showPanel(title, content);
}

// load() returns what is to be shown.
export async function openPanel(title, load) {
  const which = showPanel(title, html`<p role="status">${t('loading')}</p>`);
  try {
    const content = await load();
    await styled();
    replacePanel(which, title, content);
  } catch (failure) {
    replacePanel(which, title, html`<p class="error" role="alert">${failure.message}</p>`);
  }
}

export function closePanel() {
  document.getElementById('panel')?.close();
}

function closed() {
  state.panel = null;
  redraw();
}

export function Panel({ panel }) {
  return html`<${Dialog} id="panel" class="panel permissions" shown=${panel} closed=${closed} aria-labelledby="panel-title">
    <div class="panel-head">
      <h2 id="panel-title">${panel?.title}</h2>
      <button id="close-panel" class="icon" type="button" aria-label=${t('close')} onClick=${closePanel}><${Icon} name="close" /></button>
    </div>
    <div class="permissions-body">${panel?.content}</div>
  <//>`;
}
