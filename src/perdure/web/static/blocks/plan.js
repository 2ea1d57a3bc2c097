// What is still to be done, as the agent lists it.

import { html } from '../ui.js';
import { Prose } from './text.js';

// The marks with which the gateway writes such a list.
const STATES = { '☐': 'open', '▶': 'doing', '☑': 'done', '✖': 'dropped' };

function marked(body) {
  for (const item of body.querySelectorAll('li')) item.className = STATES[[...item.textContent.trim()][0]] ?? '';
}

export const Plan = ({ text }) => html`<${Prose} text=${text} mark=${marked} />`;
