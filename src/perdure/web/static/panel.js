// A dialog of the page, which shows one thing at a time. What is shown in it is loaded when it is
// asked for, like its style sheet.

import { loadStyle } from './scripts.js';
import { html, render } from './ui.js';
import { t } from './language.js';

const styled = () => loadStyle('./panel.css');

export class Panel {
  #dialog = document.getElementById('panel');
  #title = document.getElementById('panel-title');
  #body = document.getElementById('panel-body');

  constructor() {
    document.getElementById('close-panel').addEventListener('click', () => this.close());
    // A click beside the dialog is one on its backdrop.
    this.#dialog.addEventListener('click', (event) => {
      if (event.target === this.#dialog) this.close();
    });
  }

  show(title, content) {
    this.#title.textContent = title;
    // What is shown may take the focus, which a dialog gives to its first button.
    if (!this.#dialog.open) this.#dialog.showModal();
    render(content, this.#body);
  }

  // Until it would look as it is meant.
  styled() {
    return styled();
  }

  // load() returns what is to be shown.
  async open(title, load) {
    await styled();
    this.show(title, html`<p role="status">${t('Loading…')}</p>`);
    try {
      this.show(title, await load());
    } catch (failure) {
      this.show(title, html`<p class="error" role="alert">${failure.message}</p>`);
    }
  }

  close() {
    this.#dialog.close();
    render(null, this.#body);
  }
}
