// What stands under a message: what can be done with it, its other versions, and what it took.

import * as api from './api.js';
import { copyText } from './clipboard.js';
import { entryOf } from './entries.js';
import { Icon, html, useState } from './ui.js';
import { shortCount, spanWords, timeRows } from './words.js';
import { number, t } from './language.js';

const NONE = [];
const SAID_MS = 1500;

function Act({ label, icon, action, title = label, ...rest }) {
  return html`<button type="button" class="icon tiny" aria-label=${label} title=${title} onClick=${action} ...${rest}><${Icon} name=${icon} /></button>`;
}

function Copy({ text }) {
  const [words, setWords] = useState('');
  const copy = async () => {
    setWords((await copyText(text)) ? t('copied') : t('could_not_be_copied'));
    setTimeout(() => setWords(''), SAID_MS);
  };
  return html`<${Act} label=${t('copy')} icon=${words === t('copied') ? 'check' : 'copy'} action=${copy} /><span class="visually-hidden" role="status">${words}</span>`;
}

// The versions of a message or an answer, to leaf through. Nothing is changed by that.
export function useVersions(entry, versions, role) {
  const [which, setWhich] = useState(null);
  const [found, setFound] = useState({});
  const all = versions.length > 1 ? versions : NONE;
  const at = all.indexOf(which !== null && all.includes(which) ? which : entry.turn);
  const turnTo = async (turn) => {
    if (turn !== entry.turn && !found[turn]) {
      const { messages } = await api.turnMessages(turn);
      const texts = messages.filter((each) => each.role === role).map((each) => entryOf(each, 0));
      const last = role === 'user' ? texts[0] : texts.findLast(({ text }) => text) ?? texts.at(-1);
      if (last) setFound((known) => ({ ...known, [turn]: last }));
    }
    setWhich(turn);
  };
  const shown = (which !== entry.turn && all.includes(which) && found[which]) || entry;
  const pager = all.length && at >= 0 ? html`<${Pager} at=${at} all=${all} turnTo=${turnTo} />` : null;
  return { shown, pager };
}

function Pager({ at, all, turnTo }) {
  const [problem, setProblem] = useState('');
  const go = (step) => turnTo(all[at + step]).then(() => setProblem(''), (failure) => setProblem(failure.message));
  return html`<span class="pager" role="group" aria-label=${t('versions')}>
    <${Act} label=${t('previous_version')} icon="left" action=${() => go(-1)} aria-disabled=${String(at === 0)} disabled=${at === 0} />
    <span class="meta" role="status">${at + 1}/${all.length}</span>
    <${Act} label=${t('next_version')} icon="right" action=${() => go(1)} disabled=${at === all.length - 1} />
    ${problem ? html`<span class="error">${problem}</span>` : null}
  </span>`;
}

export function Foot({ entry, acts, pager, isOther, time = null, more = null }) {
  const { turn, text, origin } = entry;
  return html`<div class="foot">
    <${Copy} text=${text} />
    ${origin || isOther ? null : html`<${Act} label=${t('regenerate')} icon="again" title=${t('ask_again')} action=${() => acts.again(turn)} />`}
    ${origin || isOther ? null : html`<${Act} label=${t('edit')} icon="edit" title=${t('ask_in_other_words')} action=${() => acts.edit(turn)} />`}
    <${Act} label=${t('branch')} icon="branch" title=${t('go_on_from_here_in')} action=${() => acts.branch(turn)} />
    <${Act} label=${t('why')} icon="why" title=${t('what_happened_here')} action=${() => acts.why(turn)} />
    ${pager}
    ${isOther ? html`<span class="meta">${t('another_version_branch_goes_on')}</span>` : null}
    ${time}${more}
  </div>`;
}

// What an answer took, on demand.
export function Spent({ usage, timings, agentState }) {
  const steps = [...(timings ? timeRows(timings) : NONE), ...stateRows(agentState)];
  if (!usage && !steps.length) return null;
  const rows = [...steps, ...usageRows(usage)];
  return html`<details class="times"><summary class="meta">${usage ? t('shown_tokens', { count: usage.output_tokens ?? 0, shown: shortCount(usage.output_tokens ?? 0) }) : t('where_the_time_went')}</summary>
    <dl>${rows.map(([name, words]) => html`<dt>${name}</dt><dd>${words}</dd>`)}</dl></details>`;
}

// What an agent's program has told of its own session.
function stateRows(state) {
  const { mode = '', commands = NONE } = state ?? {};
  return [[t('mode'), mode], [t('its_commands'), commands.join(', ')]].filter(([, words]) => words);
}

function usageRows(usage) {
  if (!usage) return NONE;
  const { agent, input_tokens: read = 0, output_tokens: written = 0, cache_read_tokens: cached = 0, cost = 0, took_ms: took = 0 } = usage;
  const rows = [
    [t('agent'), agent],
    [t('read'), read && (cached ? t('count_tokens_cached_of_them', { count: read, cached }) : t('count_tokens', { count: read }))],
    [t('written'), written && t('count_tokens', { count: written })],
    [t('cost'), cost && number(cost / 1e6, { maximumFractionDigits: 4 })],
    [t('time'), took && spanWords(took)],
  ];
  return rows.filter(([, words]) => words);
}
