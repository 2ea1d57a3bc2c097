// The commands that fit what is typed, while it is one word after a slash at the very beginning.
// The keyboard stays in the text box: the list only says which of its lines is meant.

import * as api from '../api.js';
import { t } from '../language.js';
import { html, useLayoutEffect, useRef } from '../ui.js';

const FIRST_WORD = /^\/([a-z]*)$/i;
const typedIn = (text) => FIRST_WORD.exec(text)?.[1] ?? null;

// The exact name comes first: Enter then means it, and not a longer one.
function matching(commands, typed) {
  const begun = typed.toLowerCase();
  const namesOf = ({ name, aliases }) => [name, ...aliases];
  const isExact = (command) => namesOf(command).includes(begun);
  const fits = commands.filter((command) => namesOf(command).some((name) => name.startsWith(begun)));
  return [...fits.filter(isExact), ...fits.filter((command) => !isExact(command))];
}

export class Commands {
  shown = [];
  active = 0;
  version = 0;
  #text = '';
  #known = null;
  #knownTo = null;
  #isMoved = false;
  #isDismissed = false;
  #isWatched = false;
  #chosen;
  #changed;

  // chosen(text) is called with what the text box is to hold, changed() when the list is another.
  constructor({ chosen, changed }) {
    this.#chosen = chosen;
    this.#changed = changed;
  }

  // Whether the text box has the focus.
  watch(isWatched) {
    this.#isWatched = isWatched;
    if (isWatched) this.#look();
    else this.close();
  }

  typed(text) {
    if (text === this.#text) return;
    this.#text = text;
    this.#look();
  }

  async #look() {
    const typed = typedIn(this.#text);
    if (typed === null) {
      this.#isDismissed = false;
      this.close();
      return;
    }
    if (this.#isDismissed || !this.#isWatched) return;
    const known = await this.#commands();
    // Typing goes on while the list is fetched.
    if (typedIn(this.#text) === typed && this.#isWatched) this.#show(matching(known, typed));
  }

  close() {
    if (this.shown.length) this.#show([]);
  }

  // True when the key was meant for the list.
  key(event) {
    if (!this.shown.length || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return false;
    switch (event.key) {
      case 'ArrowDown': return this.#move(1);
      case 'ArrowUp': return this.#move(-1);
      case 'Tab': return this.choose(this.shown[this.active]);
      case 'Enter': return !this.#isWhole() && this.choose(this.shown[this.active]);
      case 'Escape':
        this.#isDismissed = true;
        this.close();
        return true;
      default: return false;
    }
  }

  // With room for what may follow; without, where nothing may.
  choose({ name, usage }) {
    const isLonger = usage.includes(' ');
    this.#isDismissed = !isLonger;
    this.close();
    this.#chosen(isLonger ? `/${name} ` : `/${name}`);
    return true;
  }

  async #commands() {
    const token = api.token();
    if (this.#known && this.#knownTo === token) return this.#known;
    try {
      this.#known = (await api.commands()).commands;
      this.#knownTo = token;
    } catch {
      // Commands work without a list; the next slash asks again.
      return [];
    }
    return this.#known;
  }

  // What is typed is a command already, and the arrows have chosen no other.
  #isWhole() {
    const { name, aliases } = this.shown[0];
    return !this.#isMoved && [name, ...aliases].includes(typedIn(this.#text)?.toLowerCase());
  }

  #show(commands) {
    this.shown = commands;
    this.active = 0;
    this.#isMoved = false;
    this.#told();
  }

  #move(step) {
    this.#isMoved = true;
    this.active = (this.active + step + this.shown.length) % this.shown.length;
    this.#told();
    return true;
  }

  #told() {
    this.version += 1;
    this.#changed();
  }
}

export const rowId = (at) => `command-${at}`;

function Row({ usage, help, at, isActive, choose }) {
  const row = useRef(null);
  useLayoutEffect(() => {
    if (isActive) row.current.scrollIntoView({ block: 'nearest' });
  }, [isActive]);
  return html`<li ref=${row} class="command" id=${rowId(at)} role="option" aria-selected=${String(isActive)} onClick=${choose}>
    <span class="command-usage">${usage}</span><span class="command-help">${help}</span>
  </li>`;
}

export function CommandList({ commands }) {
  const { shown, active } = commands;
  // A press would take the focus from the text box before the click arrives.
  const stay = (event) => event.preventDefault();
  return html`
    <ul id="commands" class="commands" role="listbox" aria-label=${t('commands')} hidden=${!shown.length} onPointerDown=${stay}>
      ${shown.map((command, at) => html`<${Row} key=${command.name} ...${command} at=${at} isActive=${at === active} choose=${() => commands.choose(command)} />`)}
    </ul>
    <span class="visually-hidden" role="status">${shown.length ? t('count_commands_the_arrow_keys', { count: shown.length }) : ''}</span>`;
}
