// Who could answer, how, and what the model reads: the dialog behind the header's button.

import { Prose } from './blocks/text.js';
import { Button, html } from './ui.js';
import { shareOf, shortCount } from './words.js';
import { t } from './language.js';

function Fill(known) {
  const { tokens = 0, window = 0 } = known;
  if (!tokens) return html`<p>${t('Nothing is known yet of how much the model reads here.')}</p>`;
  const words = window ? `${shortCount(tokens)} of ${shortCount(window)} tokens` : `${shortCount(tokens)} tokens`;
  return html`<p>The model reads about ${words}.</p>
    ${window ? html`<meter min="0" max="1" high="0.75" value=${shareOf(known)} aria-label="How full the model’s window is">${words}</meter>` : null}`;
}

function Choice({ name, words, isChosen, choose }) {
  return html`<li><button type="button" class="option" aria-pressed=${String(isChosen)} onClick=${choose}>
    <span dir="auto">${name}</span>${words ? html`<span class="meta">${words}</span>` : null}
  </button></li>`;
}

export function Choices({ known, say }) {
  const { agent, agents, persona = '', personas, summary = '', summarized_turns: turns = 0, effort = '' } = known;
  return html`
    <h3>${t('Agent')}</h3>
    <ul class="options-list">${agents.map(({ name, model = '', window = 0 }) => html`<${Choice} key=${name} name=${name} isChosen=${name === agent} choose=${() => say(`/agent ${name}`)}
      words=${[model, window && `${shortCount(window)} tokens`].filter(Boolean).join(', ')} />`)}</ul>
    ${personas.length ? html`<h3>${t('Persona')}</h3><ul class="options-list">
      <${Choice} name="As configured" isChosen=${!persona} choose=${() => say('/persona none')} />
      ${personas.map((name) => html`<${Choice} key=${name} name=${name} isChosen=${name === persona} choose=${() => say(`/persona ${name}`)} />`)}
    </ul>` : null}
    ${effort ? html`<p>It thinks with effort: ${effort}.</p>` : null}
    <h3>${t('Context')}</h3>
    <${Fill} ...${known} />
    ${summary
      ? html`<p>A summary stands for ${turns} older turns. You still see all of them; the model reads this:</p>
          <details class="asked"><summary>${t('The summary')}</summary><${Prose} text=${summary} /></details>
          <div class="choices"><${Button} class="quiet small" label=${t('Show all again')} action=${() => say('/compact off')} /></div>`
      : html`<div class="choices"><${Button} class="quiet small" label=${t('Shorten')} title=${t('Have older turns summarised for the model')} action=${() => say('/compact')} /></div>`}`;
}

