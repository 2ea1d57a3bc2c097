// Who could answer, how, and what the model reads: the dialog behind the header's button.

import { Prose } from '../blocks/text.js';
import { Button, html } from '../ui.js';
import { shareOf, shortCount } from '../words.js';
import { t } from '../language.js';

function Fill(known) {
  const { tokens = 0, window = 0 } = known;
  if (!tokens) return html`<p>${t('nothing_is_known_yet_of')}</p>`;
  const shown = { tokens: shortCount(tokens), window: shortCount(window) };
  const words = window ? t('the_model_reads_so_much_of', shown) : t('the_model_reads_so_much', shown);
  return html`<p>${words}</p>
    ${window ? html`<meter min="0" max="1" high="0.75" value=${shareOf(known)} aria-label=${t('how_full_the_model_window')}>${words}</meter>` : null}`;
}

function Choice({ name, words, isChosen, choose }) {
  return html`<li><button type="button" class="option" aria-pressed=${String(isChosen)} onClick=${choose}>
    <span dir="auto">${name}</span>${words ? html`<span class="meta">${words}</span>` : null}
  </button></li>`;
}

export function Choices({ known, say }) {
  const { agent, agents, persona = '', personas, summary = '', summarized_turns: turns = 0, effort = '' } = known;
  return html`
    <h3>${t('agent')}</h3>
    <ul class="options-list">${agents.map(({ name, model = '', window = 0 }) => html`<${Choice} key=${name} name=${name} isChosen=${name === agent} choose=${() => say(`/agent ${name}`)}
      words=${[model, window && t('shown_tokens', { count: window, shown: shortCount(window) })].filter(Boolean).join(', ')} />`)}</ul>
    ${personas.length ? html`<h3>${t('persona')}</h3><ul class="options-list">
      <${Choice} name=${t('as_configured')} isChosen=${!persona} choose=${() => say('/persona none')} />
      ${personas.map((name) => html`<${Choice} key=${name} name=${name} isChosen=${name === persona} choose=${() => say(`/persona ${name}`)} />`)}
    </ul>` : null}
    ${effort ? html`<p>${t('it_thinks_with_effort_effort', { effort })}</p>` : null}
    <h3>${t('context')}</h3>
    <${Fill} ...${known} />
    ${summary
      ? html`<p>${t('a_summary_stands_for_count', { count: turns })}</p>
          <details class="asked"><summary>${t('the_summary')}</summary><${Prose} text=${summary} /></details>
          <div class="choices"><${Button} class="quiet small" label=${t('show_all_again')} action=${() => say('/compact off')} /></div>`
      : html`<div class="choices"><${Button} class="quiet small" label=${t('shorten')} title=${t('have_older_turns_summarised_for')} action=${() => say('/compact')} /></div>`}`;
}

