// What a person may choose about the page, on this device.

import { LANGUAGES, choose, chosen, t } from '../language.js';
import { html } from '../ui.js';
import { Notifications } from './notifications.js';

export function Settings() {
  return html`<label for="language">${t('language')}</label>
    <select id="language" value=${chosen ?? ''} onChange=${(event) => choose(event.currentTarget.value)}>
      <option value="">${t('as_the_browser_asks_for')}</option>
      ${Object.entries(LANGUAGES).map(([code, name]) => html`<option key=${code} value=${code} lang=${code}>${name}</option>`)}
    </select>
    <${Notifications} />`;
}
