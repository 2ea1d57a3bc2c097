// Tells what happened to a message: everything that is stored about its turn.

import * as api from './api.js';
import { exact } from './exact.js';
import { html } from './ui.js';
import { whenOf } from './words.js';
import { t } from './language.js';

const momentOf = (at) => whenOf(at)?.toLocaleString() ?? '';

function rowsOf({ turn, request, conversation, command, reply, refused }) {
  const rows = [
    [t('Outcome'), turn && [turn.outcome ?? turn.state, turn.reason].filter(Boolean).join(': ')],
    [t('Why'), turn?.detail || refused],
    [t('Agent'), request?.agent],
    [t('Asked'), turn && momentOf(turn.queued_at)],
    [t('Begun'), turn?.started_at && momentOf(turn.started_at)],
    [t('Over'), turn?.settled_at && momentOf(turn.settled_at)],
    [t('Attempts'), turn && String(turn.attempts)],
    [t('Command'), command && `/${command}`],
    [t('Reply'), reply],
    ['Conversation', conversation],
    [t('Turn'), turn?.id],
  ];
  return rows.filter(([, words]) => words);
}

const STEPS = (events) => events.map(({ at, kind, seq }) => html`<li key=${seq}><time>${whenOf(at)?.toLocaleTimeString()}</time> ${kind.replaceAll('_', ' ')}</li>`);

function Explained({ found }) {
  const { events = [], parts = [] } = found;
  return html`
    <dl class="facts">${rowsOf(found).map(([name, words]) => html`<dt>${name}</dt><dd>${exact(String(words))}</dd>`)}</dl>
    ${events.length ? html`<h3>${t('What happened, in order')}</h3><ol class="steps">${STEPS(events)}</ol>` : null}
    ${parts.length ? html`<h3>${t('What was sent')}</h3><ul class="steps">${parts.map((part) => html`<li>${part.state}${part.receipt ? `, ${part.receipt}` : ''}</li>`)}</ul>` : null}
    <details class="asked"><summary>${t('Everything that is stored')}</summary><pre class="tool-text" tabindex="0">${exact(JSON.stringify(found, null, 2))}</pre></details>`;
}

export const explained = async (turn) => html`<${Explained} found=${await api.explain(turn)} />`;
