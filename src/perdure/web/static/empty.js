// What is shown where nothing was said yet.

import { t } from './language.js';
import { Marked, html } from './ui.js';

export function Empty({ agents }) {
  const isDemo = agents[0]?.kind === 'demo';
  return html`<div id="empty" class="empty">
    <h2>${t('start_a_conversation')}</h2>
    <p>${t('what_you_write_is_stored')}</p>
    <p><${Marked} text=${t('type_for_commands_undo_takes')} /></p>
    ${isDemo ? html`<p class="demo"><${Marked} text=${t('this_is_the_offline_demo')} /></p>` : null}
  </div>`;
}
