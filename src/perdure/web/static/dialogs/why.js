// Tells what happened to a message: everything that is stored about its turn.

import * as api from '../api.js';
import { exact } from '../exact.js';
import { html } from '../ui.js';
import { whenOf, wholeTime } from '../words.js';
import { locale, t } from '../language.js';

const momentOf = (at) => (whenOf(at) ? wholeTime(whenOf(at)) : '');

function rowsOf({ turn, request, conversation, command, reply, refused }) {
  const rows = [
    [t('outcome'), turn && [turn.outcome ?? turn.state, turn.reason].filter(Boolean).join(': ')],
    [t('why'), turn?.detail || refused],
    [t('agent'), request?.agent],
    [t('asked'), turn && momentOf(turn.queued_at)],
    [t('begun'), turn?.started_at && momentOf(turn.started_at)],
    [t('over_at'), turn?.settled_at && momentOf(turn.settled_at)],
    [t('attempts'), turn && String(turn.attempts)],
    [t('command'), command && `/${command}`],
    [t('reply'), reply],
    [t('conversation'), conversation],
    [t('turn'), turn?.id],
  ];
  return rows.filter(([, words]) => words);
}

const STEPS = (events) => events.map(({ at, kind, seq }) => html`<li key=${seq}><time>${whenOf(at)?.toLocaleTimeString(locale)}</time> ${kind.replaceAll('_', ' ')}</li>`);

function Explained({ found }) {
  const { events = [], parts = [] } = found;
  return html`
    <dl class="facts">${rowsOf(found).map(([name, words]) => html`<dt>${name}</dt><dd>${exact(String(words))}</dd>`)}</dl>
    ${events.length ? html`<h3>${t('what_happened_in_order')}</h3><ol class="steps">${STEPS(events)}</ol>` : null}
    ${parts.length ? html`<h3>${t('what_was_sent')}</h3><ul class="steps">${parts.map((part) => html`<li>${part.state}${part.receipt ? `, ${part.receipt}` : ''}</li>`)}</ul>` : null}
    <details class="asked"><summary>${t('everything_that_is_stored')}</summary><pre class="tool-text" tabindex="0">${exact(JSON.stringify(found, null, 2))}</pre></details>`;
}

export const explained = async (turn) => html`<${Explained} found=${await api.explain(turn)} />`;
