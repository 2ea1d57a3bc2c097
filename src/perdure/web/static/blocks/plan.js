// What is still to be done, as the agent lists it.

import { t } from '../language.js';
import { html } from '../ui.js';
import { Prose } from './text.js';

// The marks with which the gateway writes such a list.
const STATES = { '☐': 'open', '▶': 'doing', '☑': 'done', '✖': 'dropped' };

function marked(body) {
  for (const item of body.querySelectorAll('li')) item.className = STATES[[...item.textContent.trim()][0]] ?? '';
}

// What the gateway writes above it.
const HEAD = /^📋 \*\*To do\*\*(?: \((\d+) of (\d+) done\)|: nothing)/u;

const headed = (_, done, count) =>
  count === undefined ? `**${t('to_do')}**: ${t('nothing_to_do')}` : `**${t('to_do')}** (${t('done_of_count', { done: Number(done), count: Number(count) })})`;

export const Plan = ({ text }) => html`<${Prose} text=${text.replace(HEAD, headed)} mark=${marked} />`;
