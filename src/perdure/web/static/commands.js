// The commands that fit what is typed, while it is one word after a slash at the very beginning.
// The keyboard stays in the text box: the list only says which of its lines is meant.

import * as api from './api.js';
import { make } from './elements.js';

const FIRST_WORD = /^\/([a-z]*)$/i;

// The exact name comes first: Enter then means it, and not a longer one.
export function matching(commands, typed) {
  const begun = typed.toLowerCase();
  const namesOf = ({ name, aliases }) => [name, ...aliases];
  const isExact = (command) => namesOf(command).includes(begun);
  const fits = commands.filter((command) => namesOf(command).some((name) => name.startsWith(begun)));
  return [...fits.filter(isExact), ...fits.filter((command) => !isExact(command))];
}

export class CommandMenu {
  #text;
  #chosen;
  #list = document.getElementById('commands');
  #count = document.getElementById('commands-count');
  #known = null;
  #knownTo = null;
  #shown = [];
  #active = 0;
  #isMoved = false;
  #isDismissed = false;

  // chosen(text) is called with what the text box is to hold.
  constructor(text, { chosen }) {
    this.#text = text;
    this.#chosen = chosen;
    text.addEventListener('blur', () => this.close());
    text.addEventListener('focus', () => this.update());
    // A press would take the focus from the text box before the click arrives.
    this.#list.addEventListener('pointerdown', (event) => event.preventDefault());
    this.#list.addEventListener('click', (event) => {
      const row = event.target.closest('[role=option]');
      if (row) this.#choose(this.#shown[[...this.#list.children].indexOf(row)]);
    });
  }

  async update() {
    const typed = this.#typed();
    if (typed === null) {
      this.#isDismissed = false;
      this.close();
      return;
    }
    if (this.#isDismissed || document.activeElement !== this.#text) return;
    const known = await this.#commands();
    // Typing goes on while the list is fetched.
    if (this.#typed() === typed) this.#show(matching(known, typed));
  }

  close() {
    this.#show([]);
  }

  // True when the key was meant for the menu.
  key(event) {
    if (!this.#shown.length || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return false;
    switch (event.key) {
      case 'ArrowDown': return this.#move(1);
      case 'ArrowUp': return this.#move(-1);
      case 'Tab': return this.#choose(this.#shown[this.#active]);
      case 'Enter': return !this.#isWhole() && this.#choose(this.#shown[this.#active]);
      case 'Escape':
        this.#isDismissed = true;
        this.close();
        return true;
      default: return false;
    }
  }

  #typed() {
    return FIRST_WORD.exec(this.#text.value)?.[1] ?? null;
  }

  async #commands() {
    const token = api.token();
    if (this.#known && this.#knownTo === token) return this.#known;
    try {
      this.#known = (await api.commands()).commands;
      this.#knownTo = token;
    } catch {
      // Commands work without a menu; the next slash asks again.
      return [];
    }
    return this.#known;
  }

  // What is typed is a command already, and the arrows have chosen no other.
  #isWhole() {
    const { name, aliases } = this.#shown[0];
    return !this.#isMoved && [name, ...aliases].includes(this.#typed()?.toLowerCase());
  }

  #show(commands) {
    this.#shown = commands;
    this.#isMoved = false;
    this.#list.hidden = !commands.length;
    this.#list.replaceChildren(...commands.map((command, at) => this.#row(command, at)));
    this.#count.textContent = commands.length ? `${commands.length} commands; the arrow keys choose, Tab completes` : '';
    this.#activate(0);
  }

  #row({ usage, help }, at) {
    const row = make('li', 'command', make('span', 'command-usage', usage), make('span', 'command-help', help));
    row.id = `command-${at}`;
    row.setAttribute('role', 'option');
    return row;
  }

  #move(step) {
    this.#isMoved = true;
    this.#activate((this.#active + step + this.#shown.length) % this.#shown.length);
    return true;
  }

  #activate(at) {
    this.#active = at;
    [...this.#list.children].forEach((row, n) => row.setAttribute('aria-selected', String(n === at)));
    const row = this.#list.children[at];
    if (row) this.#text.setAttribute('aria-activedescendant', row.id);
    else this.#text.removeAttribute('aria-activedescendant');
    row?.scrollIntoView({ block: 'nearest' });
  }

  // With room for what may follow; without, where nothing may.
  #choose({ name, usage }) {
    this.#chosen(usage.includes(' ') ? `/${name} ` : `/${name}`);
    this.close();
    this.#isDismissed = !usage.includes(' ');
    return true;
  }
}
