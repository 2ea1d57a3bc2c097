// Who answers in a conversation: shown in the header, and chosen in a dialog.

import * as api from './api.js';
import { html } from './ui.js';
import { shareOf } from './words.js';
import { t } from './language.js';

const REST_MS = 300;

export class Answering {
  #button = document.getElementById('answering');
  #panel;
  #where;
  #say;
  #known = null;
  #timer = null;

  // where() returns the conversation's name, empty if the gateway does not know it yet.
  constructor({ panel, where, say }) {
    this.#panel = panel;
    this.#where = where;
    this.#say = say;
    this.#button.addEventListener('click', () => this.#open());
  }

  // Something has happened that may have changed it; what comes in a burst is read once.
  look() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#read().catch(() => {}), REST_MS);
  }

  async #read() {
    const { name } = this.#where();
    const known = await api.context(name);
    if (name !== this.#where().name) return;
    this.#known = known;
    this.#draw();
  }

  #draw() {
    const { agent, agents } = this.#known;
    const model = agents.find(({ name }) => name === agent)?.model;
    const full = shareOf(this.#known);
    const words = [agent, model, full >= 0.01 && `${Math.round(full * 100)} % full`].filter(Boolean).join(' · ');
    this.#button.textContent = words;
    this.#button.setAttribute('aria-label', `Who answers: ${words}`);
    this.#button.hidden = !words;
  }

  #open() {
    const say = (words) => {
      this.#panel.close();
      this.#say(words);
    };
    this.#panel.open(t('Who answers here'), async () => {
      const [{ Choices }] = await Promise.all([import('./choices.js'), this.#read()]);
      return html`<${Choices} known=${this.#known} say=${say} />`;
    });
  }
}
