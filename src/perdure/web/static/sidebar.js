// The list of conversations: the gateway's, and those that exist only here until their first
// message is taken.

import * as api from './api.js';
import { make } from './elements.js';
import * as storage from './storage.js';
import { shortTime } from './words.js';

const TITLES = 'perdure.titles';
const TITLES_MAX = 200;

export class Sidebar {
  #root = document.getElementById('sidebar');
  #list = document.getElementById('conversations');
  #more = document.getElementById('more-conversations');
  #error = document.getElementById('sidebar-error');
  #opener = document.getElementById('open-sidebar');
  #backdrop = document.getElementById('backdrop');
  #narrow = matchMedia('(max-width: 760px)');
  #titles = storage.readJson(TITLES, {});
  #known = [];
  #next = null;
  #shown = '';
  #drawnWith = [null, []];
  #isMoreShown = false;
  #refused;

  constructor({ create, refused }) {
    this.#refused = refused;
    document.getElementById('new-chat').addEventListener('click', create);
    this.#opener.addEventListener('click', () => this.toggle(true));
    document.getElementById('close-sidebar').addEventListener('click', () => this.toggle(false));
    this.#backdrop.addEventListener('click', () => this.toggle(false));
    this.#more.addEventListener('click', () => this.#showMore());
    this.#narrow.addEventListener('change', () => this.toggle(false));
    document.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape' || this.#opener.getAttribute('aria-expanded') !== 'true') return;
      event.preventDefault();
      this.toggle(false);
    });
    this.toggle(false);
  }

  toggle(isOpen) {
    const isDrawer = this.#narrow.matches;
    const wasOpen = this.#root.classList.contains('open');
    this.#root.classList.toggle('open', isOpen && isDrawer);
    this.#root.inert = isDrawer && !isOpen;
    this.#backdrop.hidden = !(isDrawer && isOpen);
    this.#opener.setAttribute('aria-expanded', String(isDrawer && isOpen));
    if (isDrawer && isOpen) document.getElementById('close-sidebar').focus();
    else if (isDrawer && wasOpen) this.#opener.focus();
  }

  get newest() {
    return this.#known[0]?.name ?? null;
  }

  has(name) {
    return this.#known.some((row) => row.name === name);
  }

  titleOf(name) {
    const title = this.#known.find((row) => row.name === name)?.title || this.#titles[name];
    return title || (/^chat-/.test(name) ? 'Untitled chat' : name);
  }

  // The gateway's title; empty while it has none.
  named(name, title) {
    this.#known = this.#known.map((row) => (row.name === name ? { ...row, title } : row));
  }

  // Until the gateway has made a title, a chat is known by how it began.
  remember(name, text) {
    const line = text.trim().split('\n')[0].slice(0, 80);
    if (!line || this.#titles[name] === line) return;
    const kept = Object.entries({ ...this.#titles, [name]: line }).slice(-TITLES_MAX);
    this.#titles = Object.fromEntries(kept);
    storage.writeJson(TITLES, this.#titles);
  }

  // The newest page of the gateway's list.
  show(page) {
    const names = new Set(page.conversations.map((row) => row.name));
    const rest = this.#isMoreShown ? this.#known.filter((row) => !names.has(row.name)) : [];
    this.#known = [...page.conversations, ...rest];
    if (!this.#isMoreShown) this.#next = page.next ?? null;
    this.#fail(null);
  }

  async refresh() {
    try {
      this.show(await api.conversations(null));
    } catch (failure) {
      // The header already says when the gateway is away.
      if (failure.status === 401) this.#refused();
      else if (failure.status) this.#fail(failure.message);
    }
  }

  async #showMore() {
    try {
      const page = await api.conversations(this.#next);
      const names = new Set(this.#known.map((row) => row.name));
      this.#known = [...this.#known, ...page.conversations.filter((row) => !names.has(row.name))];
      this.#next = page.next ?? null;
      this.#isMoreShown = true;
      this.draw(...this.#drawnWith);
    } catch (failure) {
      this.#fail(failure.message);
    }
  }

  #fail(message) {
    this.#error.textContent = message ?? '';
    this.#error.hidden = !message;
  }

  // local: names of conversations that this page knows of; the gateway may not.
  draw(current, local) {
    this.#drawnWith = [current, local];
    const unknown = [...local].filter((name) => !this.has(name));
    const rows = [...unknown.map((name) => ({ name, state: 'idle' })), ...this.#known];
    this.#more.hidden = !this.#next;
    // Drawn only when something changed: a redraw would take the keyboard's focus with it.
    const shown = JSON.stringify(rows.map((row) => [row.name, row.state, row.queued, row.at, this.titleOf(row.name), row.name === current]));
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#list.replaceChildren(...rows.map((row) => this.#row(row, row.name === current)));
  }

  #row({ name, state, at, queued }, isCurrent) {
    const link = make('a', '', make('span', 'conversation-title', this.titleOf(name)));
    link.href = `#c=${encodeURIComponent(name)}`;
    link.title = name;
    if (isCurrent) link.setAttribute('aria-current', 'page');
    const isBusy = state && state !== 'idle' && state !== 'suspended';
    if (state === 'waiting') link.append(make('span', 'waits', 'asks you'));
    else if (isBusy) {
      const dot = make('span', 'dot', make('span', 'visually-hidden', queued ? `${state}, ${queued} queued` : state));
      link.append(dot);
    } else if (at) link.append(make('span', 'when', shortTime(at)));
    return make('li', '', link);
  }
}
