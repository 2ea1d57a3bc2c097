// The rows of a conversation. A row that did not change is not drawn again.

import { Blocks } from './blocks/index.js';
import { Notice } from './blocks/notice.js';
import { Plan } from './blocks/plan.js';
import { loadStyle } from './scripts.js';
import { Button, Icon, html, isAlike, lazily, remembered, useState } from './ui.js';
import { Foot, Spent, useVersions } from './foot.js';
import { clockTime, leftOutWords, whenOf, wholeTime } from './words.js';
import { t } from './language.js';

function Time({ at }) {
  const when = whenOf(at);
  if (!when) return null;
  const shown = clockTime(when);
  return html`<time datetime=${when.toISOString()} title=${wholeTime(when)}>${shown}</time>`;
}

function User({ row: { entry, label, canAct }, acts }) {
  const { shown, pager } = useVersions(entry, entry.versions, 'user');
  return html`
    <span class="visually-hidden">${t('you_said')}</span>
    <${Blocks} message=${shown} />
    ${label || entry.leftOut ? html`<div class="meta">${label ?? leftOutWords(entry.leftOut)}</div>` : null}
    ${canAct ? html`<${Foot} entry=${shown} acts=${acts} pager=${pager} isOther=${shown !== entry} time=${html`<${Time} at=${shown.at} />`} />` : null}`;
}

function Pending({ row: { item, label, error }, acts }) {
  const message = { role: 'user', text: item.text, attachments: item.attachments };
  const failed = html`<div class="meta error" role="alert">
    ${label ?? ''}<span>${error}</span>
    <${Button} class="link" label=${t('try_again')} action=${() => acts.sendAgain(item.id)} />
    <${Button} class="link" label=${t('discard')} action=${() => acts.discard(item.id)} />
  </div>`;
  return html`
    <span class="visually-hidden">${t('you_said')}</span>
    <${Blocks} message=${message} />
    ${error ? failed : html`<div class="meta">${label ?? ''}</div>`}`;
}

function Assistant({ row: { entry, isStreaming, timings, agentState, usage, canAct }, acts }) {
  const { shown, pager } = useVersions(entry, entry.answers, 'assistant');
  const isOther = shown !== entry;
  return html`
    ${entry.origin ? html`<div class="meta">${t('sent_from_elsewhere')}</div>` : null}
    <span class="visually-hidden">${entry.origin ? '' : t('answer_follows')}</span>
    <${Blocks} message=${shown} isStreaming=${isStreaming} />
    ${canAct ? html`<${Foot} entry=${shown} acts=${acts} pager=${pager} isOther=${isOther}
      more=${html`<${Spent} usage=${isOther ? shown.usage : usage} timings=${isOther ? shown.timings : timings} agentState=${isOther ? shown.agentState : agentState} />`} />` : null}`;
}

function Offer({ label, act }) {
  const [isTaken, setTaken] = useState(false);
  const take = () => {
    setTaken(true);
    act();
  };
  return html`<${Button} class="link" label=${label} disabled=${isTaken} action=${take} />`;
}

const OFFERS = { compact: t('shorten'), new: t('new_session'), resume: t('go_back') };

function Outcome({ row: { outcome, text, turn, canContinue, canRetry, offers }, acts }) {
  return html`
    ${outcome === 'failed' || outcome === 'refused' ? html`<${Icon} name="alert" />` : null}
    <span>${text}</span>
    ${canContinue ? html`<${Offer} label=${t('continue')} act=${acts.goOn} />` : null}
    ${canRetry ? html`<${Offer} label=${t('retry')} act=${acts.retry} />` : null}
    ${offers ? offers.split(',').map((name) => html`<${Offer} key=${name} label=${OFFERS[name]} act=${() => acts.say(`/${name}`)} />`) : null}
    ${outcome === 'failed' ? html`<span class="meta" title=${t('the_operator_finds_out_why')}>${t('for_the_operator_turn', { turn })}</span>` : null}`;
}

function Status({ row: { text, isBusy } }) {
  return html`
    ${isBusy ? html`<span class="dots"><i></i><i></i><i></i></span>` : null}
    <span class=${isBusy && text === t('working') ? 'visually-hidden' : ''}>${text}</span>`;
}

// Most conversations have neither calls nor cards: those are loaded with the first one.
const Question = lazily(async () => {
  const [found] = await Promise.all([import('./blocks/question.js'), loadStyle('./blocks/question.css')]);
  return found.Question;
});
const ToolCall = lazily(async () => (await import('./blocks/tool.js')).ToolCall);
export const loaded = () => Promise.all([Question.loading(), ToolCall.loading()]);

const KINDS = {
  user: User,
  pending: Pending,
  assistant: Assistant,
  tool: ToolCall,
  approval: ({ row, acts }) => html`<${Question} entry=${row.entry} acts=${acts} />`,
  todo: ({ row }) => html`<${Plan} text=${row.text} />`,
  notice: ({ row, acts }) => html`<${Notice} entry=${row.entry} choices=${row.choices} say=${acts.say} />`,
  outcome: Outcome,
  status: Status,
};

export { rowsOf } from './rows.js';

// What a row is, for the style sheet.
function marksOf(row) {
  switch (row.kind) {
    case 'pending': return { class: row.item.status === 'sending' ? ' unsent' : '' };
    // Screen readers read the answer when it is whole, not at each word.
    case 'assistant': return { class: row.isStreaming ? ' streaming' : '', 'aria-busy': String(row.isStreaming), hidden: !row.entry.text && !row.entry.attachments.length };
    case 'tool': return { 'data-state': (row.effect && row.effect.state !== 'unknown' ? row.effect.state : row.state) ?? '' };
    case 'approval': return { 'data-state': row.entry.state };
    case 'notice': return { class: row.entry.text.includes('\n') ? ' long' : '' };
    case 'outcome': return { 'data-outcome': row.outcome };
    default: return {};
  }
}

function drawRow({ row, acts }) {
  const { class: marks = '', ...attributes } = marksOf(row);
  return html`<div class=${`row ${row.kind}${marks}`} data-key=${row.key} ...${attributes}><${KINDS[row.kind]} row=${row} acts=${acts} /></div>`;
}

const Row = remembered(drawRow, (before, after) => isAlike(before.row, after.row));

export const Rows = ({ rows, acts }) => rows.map((row) => html`<${Row} key=${`${row.kind} ${row.key}`} row=${row} acts=${acts} />`);
