// What the gateway itself says: notices, and the replies to commands.

import { Button, html, useState } from '../ui.js';

// Lists come as lines of two columns; the columns are drawn to fit the screen.
function told(text) {
  const rows = text.split('\n').map((line) => /^(\S.*?) {2,}(\S.*)$/.exec(line) ?? line);
  if (typeof rows[0] === 'string') return [{ text }];
  const parts = [];
  for (const row of rows) {
    if (typeof row === 'string') parts.push({ text: row });
    else {
      if (!parts.at(-1)?.list) parts.push({ list: [] });
      parts.at(-1).list.push([row[1], row[2]]);
    }
  }
  return parts;
}

function Part({ text, list }) {
  if (!list) return html`<span class="notice-text" dir="auto">${text}</span>`;
  return html`<dl class="notice-list">${list.map(([term, words]) => html`<dt>${term}</dt><dd>${words}</dd>`)}</dl>`;
}

// The words are the answer on every surface; a click only types them.
export function Notice({ entry, choices, say }) {
  const [isChosen, setChosen] = useState(false);
  const choose = (word) => {
    setChosen(true);
    say(word);
  };
  return html`
    ${entry.command ? html`<code>${entry.command}</code>` : null}
    ${told(entry.text).map((part) => html`<${Part} ...${part} />`)}
    ${choices.length ? html`<div class="choices">
      ${choices.map((word) => html`<${Button} key=${word} class="quiet small" label=${word[0].toUpperCase() + word.slice(1)} disabled=${isChosen} action=${() => choose(word)} />`)}
    </div>` : null}`;
}
