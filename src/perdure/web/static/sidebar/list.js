// The list of conversations: the gateway's, as it is told of them live, and those that exist only
// here until their first message is taken.

import * as api from '../api.js';
import { t } from '../language.js';
import { EventStream } from '../sse.js';
import { redraw } from '../state.js';
import * as storage from '../storage.js';
import { plainTitle } from '../words.js';
import { grouped, merged } from './groups.js';

const TITLES = 'perdure.titles';
const TITLES_MAX = 200;

class List {
  problem = '';
  isArchive = false;
  // Counts the changes.
  version = 0;
  #titles = storage.readJson(TITLES, {});
  #known = [];
  #archived = [];
  #next = null;
  #nextArchived = null;
  #isReading = false;
  #stream = null;

  get newest() {
    return this.#known[0]?.name ?? null;
  }

  get hasMore() {
    return Boolean(this.isArchive ? this.#nextArchived : this.#next);
  }

  // refused() is called when the token is not accepted any more, told(rows) with conversations that
  // are told anew.
  run({ refused, told }) {
    this.#stream ??= new EventStream({
      open: (_, signal) => api.listEvents(signal),
      received: (_, { conversations }) => {
        this.#told(conversations);
        told(conversations);
      },
      changed: (state) => state === 'refused' && refused(),
    });
    this.#stream.run();
  }

  close() {
    this.#stream?.close();
  }

  nudge() {
    this.#stream?.nudge();
  }

  has(name) {
    return this.find(name) !== undefined;
  }

  find(name) {
    const isIt = (row) => row.name === name;
    return this.#known.find(isIt) ?? this.#archived.find(isIt);
  }

  titleOf(name) {
    const title = this.find(name)?.title || this.#titles[name];
    return plainTitle(title) || (/^chat-/.test(name) ? t('untitled_chat') : name);
  }

  // The groups that are shown. local: names of conversations that this page knows of; the gateway may not.
  groups(local, now) {
    if (this.isArchive) return [['archived', this.#archived]];
    const own = [...local].filter((name) => !this.has(name)).map((name) => ({ name, state: 'idle', isLocal: true }));
    return grouped([...own, ...this.#known], now);
  }

  // The gateway's title; empty while it has none.
  named(name, title) {
    if (this.find(name)?.title !== title) this.#set({ known: this.#known.map((row) => (row.name === name ? { ...row, title } : row)) });
  }

  // Until the gateway has made a title, a chat is known by how it began.
  remember(name, text) {
    const line = text.trim().split('\n')[0].slice(0, 80);
    if (!line || this.#titles[name] === line) return;
    this.#titles = Object.fromEntries(Object.entries({ ...this.#titles, [name]: line }).slice(-TITLES_MAX));
    storage.writeJson(TITLES, this.#titles);
    this.#set({});
  }

  // The newest page of the gateway's list, with what is pinned further down.
  async load() {
    const [page, pinned] = await Promise.all([api.conversations(null), api.conversations(null, 'pinned')]);
    this.#set({ known: merged(page.conversations, pinned.conversations), next: page.next ?? null, problem: '' });
  }

  gone(name) {
    const isOther = (row) => row.name !== name;
    this.#set({ known: this.#known.filter(isOther), archived: this.#archived.filter(isOther) });
  }

  // One page at a time.
  async showMore() {
    if (this.#isReading || !this.hasMore) return;
    this.#isReading = true;
    await this.#attempt(() => (this.isArchive ? this.#moreArchived() : this.#moreKnown()));
    this.#isReading = false;
  }

  async #moreKnown() {
    const page = await api.conversations(this.#next);
    return { known: merged(this.#known, page.conversations), next: page.next ?? null };
  }

  async #moreArchived() {
    const page = await api.conversations(this.#nextArchived, 'archived');
    this.#nextArchived = page.next ?? null;
    return { archived: merged(this.#archived, page.conversations) };
  }

  toggleArchive() {
    return this.#attempt(async () => {
      if (this.isArchive) return { isArchive: false };
      const page = await api.conversations(null, 'archived');
      this.#nextArchived = page.next ?? null;
      return { archived: page.conversations, isArchive: true };
    });
  }

  async #attempt(read) {
    try {
      this.#set({ problem: '', ...(await read()) });
    } catch (failure) {
      this.#set({ problem: failure.message });
    }
  }

  #told(rows) {
    const names = new Set(rows.map(({ name }) => name));
    const known = merged(this.#known, rows).filter(({ archived, hidden }) => !archived && !hidden);
    const rest = this.#archived.filter(({ name }) => !names.has(name));
    this.#set({ known, archived: merged(rest, rows.filter(({ archived, hidden }) => archived && !hidden)) });
  }

  #set({ known = this.#known, archived = this.#archived, next = this.#next, problem = this.problem, isArchive = this.isArchive }) {
    this.#known = known;
    this.#archived = archived;
    this.#next = next;
    Object.assign(this, { problem, isArchive });
    this.version += 1;
    redraw();
  }
}

export const list = new List();
