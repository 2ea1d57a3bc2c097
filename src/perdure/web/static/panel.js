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
  #shown = 0;

  constructor() {
    document.getElementById('close-panel').addEventListener('click', () => this.close());
    // However it was closed: what is still being loaded for it must not open it again.
    this.#dialog.addEventListener('close', () => {
      // It is told later, and may have been opened for something else by then.
      if (this.#dialog.open) return;
      this.#shown += 1;
      render(null, this.#body);
    });
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
    this.#shown += 1;
    return this.#shown;
  }

  // Shows what was loaded for what is shown, unless something else is shown by now, or nothing.
  replace(which, title, content) {
    if (which === this.#shown) this.show(title, content);
  }

  // Until it would look as it is meant.
  styled() {
    return styled();
  }

  // load() returns what is to be shown.
  async open(title, load) {
    const styling = styled();
    const which = this.show(title, html`<p role="status">${t('Loading…')}</p>`);
    try {
      const content = await load();
      await styling;
      this.replace(which, title, content);
    } catch (failure) {
      this.replace(which, title, html`<p class="error" role="alert">${failure.message}</p>`);
    }
  }

  close() {
    this.#dialog.close();
  }
}
