// The list of conversations: the gateway's, as it is told of them live, and those that exist only
// here until their first message is taken.

import * as api from './api.js';
import { grouped, merged } from './groups.js';
import { Menu } from './menu.js';
import { EventStream } from './sse.js';
import * as storage from './storage.js';
import { html, render, useLayoutEffect, useRef } from './ui.js';
import { GROUPS, plainTitle, shortTime } from './words.js';
import { t } from './language.js';

const TITLES = 'perdure.titles';
const TITLES_MAX = 200;

function Rename({ name, title, save, cancel }) {
  const field = useRef(null);
  useLayoutEffect(() => field.current.select(), []);
  const keyed = (event) => {
    if (event.isComposing) return;
    if (event.key === 'Escape') {
      event.stopPropagation();
      event.preventDefault();
      cancel();
    } else if (event.key === 'Enter') save(name, field.current.value);
  };
  return html`<input class="rename" ref=${field} value=${title} aria-label=${t('New name')} maxlength="100" dir="auto" onKeyDown=${keyed} onBlur=${cancel} />`;
}

function Mark({ state, queued, unread, at }) {
  if (state === 'waiting') return html`<span class="waits">${t('asks you')}</span>`;
  if (state && state !== 'idle' && state !== 'suspended') {
    return html`<span class="dot"><span class="visually-hidden">${queued ? `${state}, ${queued} queued` : state}</span></span>`;
  }
  if (unread) return html`<span class="unread-mark"><span class="visually-hidden">${t('unread')}</span></span>`;
  return at ? html`<span class="when">${shortTime(at)}</span>` : null;
}

function Entry({ row, title, isCurrent, isRenaming, acts, isLocal }) {
  const { name, pinned, archived, unread } = row;
  const items = [
    { label: t('Rename'), act: () => acts.rename(name) },
    { label: archived ? t('Unarchive') : t('Archive'), act: () => acts.put(name, { archived: !archived }) },
    { label: pinned ? t('Unpin') : t('Pin'), act: () => acts.put(name, { pinned: !pinned }) },
    { label: t('Delete'), act: () => acts.remove(name), isDangerous: true },
  ];
  return html`<li class=${unread && !isCurrent ? t('unread') : ''}>
    ${isRenaming
      ? html`<${Rename} name=${name} title=${title} save=${acts.save} cancel=${acts.unname} />`
      : html`<a href=${`#c=${encodeURIComponent(name)}`} title=${name} aria-current=${isCurrent ? 'page' : null}>
          <span class="conversation-title" dir="auto">${title}</span><${Mark} ...${row} unread=${unread && !isCurrent} />
        </a>
        ${isLocal ? null : html`<${Menu} label=${t('Conversation options')} items=${items} />`}`}
  </li>`;
}

function List({ groups, ...shared }) {
  const { titleOf, current, renaming, acts, local } = shared;
  return groups.map(([group, rows]) => html`<section key=${group}>
    <h2>${GROUPS[group] ?? group}</h2>
    <ul>${rows.map((row) => html`<${Entry} key=${row.name} row=${row} title=${titleOf(row.name)} isCurrent=${row.name === current} isRenaming=${row.name === renaming} acts=${acts} isLocal=${local.has(row.name)} />`)}</ul>
  </section>`);
}

export class Sidebar {
  #root = document.getElementById('sidebar');
  #list = document.getElementById('conversations');
  #more = document.getElementById('more-conversations');
  #shelf = document.getElementById('show-archived');
  #error = document.getElementById('sidebar-error');
  #opener = document.getElementById('open-sidebar');
  #backdrop = document.getElementById('backdrop');
  #narrow = matchMedia('(max-width: 760px)');
  #titles = storage.readJson(TITLES, {});
  #known = [];
  #archived = null;
  #next = null;
  #current = null;
  #local = new Set();
  #renaming = null;
  #acts;
  #changed;
  #stream;

  // acts: rename(name, title), put(name, wish) and remove(name) do what a menu offers. changed(rows)
  // is called with conversations that are told anew.
  constructor({ create, refused, acts, changed }) {
    this.#changed = changed;
    this.#acts = {
      ...acts,
      rename: (name) => this.#name(name),
      unname: () => this.#name(null),
      save: (name, title) => {
        this.#name(null);
        if (title.trim() && title.trim() !== this.titleOf(name)) acts.rename(name, title.trim());
      },
    };
    this.#stream = new EventStream({
      open: (_, signal) => api.listEvents(signal),
      received: (_, { conversations }) => this.#told(conversations),
      changed: (state) => state === 'refused' && refused(),
    });
    document.getElementById('new-chat').addEventListener('click', create);
    this.#opener.addEventListener('click', () => this.toggle(true));
    document.getElementById('close-sidebar').addEventListener('click', () => this.toggle(false));
    this.#backdrop.addEventListener('click', () => this.toggle(false));
    this.#more.addEventListener('click', () => this.#showMore());
    this.#shelf.addEventListener('click', () => this.#toggleShelf());
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

  // Hears of changes from now on.
  run() {
    this.#stream.run();
  }

  close() {
    this.#stream.close();
  }

  nudge() {
    this.#stream.nudge();
  }

  get newest() {
    return this.#known[0]?.name ?? null;
  }

  has(name) {
    return this.find(name) !== undefined;
  }

  find(name) {
    return this.#known.find((row) => row.name === name) ?? this.#archived?.find((row) => row.name === name);
  }

  titleOf(name) {
    const title = this.find(name)?.title || this.#titles[name];
    return plainTitle(title) || (/^chat-/.test(name) ? t('Untitled chat') : name);
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

  // The newest page of the gateway's list, with what is pinned further down.
  async load() {
    const [page, pinned] = await Promise.all([api.conversations(null), api.conversations(null, 'pinned')]);
    this.#known = merged(page.conversations, pinned.conversations);
    this.#next = page.next ?? null;
    this.#fail(null);
  }

  gone(name) {
    this.#known = this.#known.filter((row) => row.name !== name);
    this.#archived = this.#archived?.filter((row) => row.name !== name) ?? null;
    this.#draw();
  }

  #told(rows) {
    this.#known = merged(this.#known, rows).filter(({ archived, hidden }) => !archived && !hidden);
    if (this.#archived) {
      const names = new Set(rows.map(({ name }) => name));
      this.#archived = merged(this.#archived.filter(({ name }) => !names.has(name)), rows.filter(({ archived, hidden }) => archived && !hidden));
    }
    this.#draw();
    this.#changed(rows);
  }

  // Drawn a moment later: a field that is taken away loses the focus while it is drawn.
  #name(name) {
    this.#renaming = name;
    queueMicrotask(() => this.#draw());
  }

  async #showMore() {
    try {
      const page = await api.conversations(this.#next);
      this.#known = merged(this.#known, page.conversations);
      this.#next = page.next ?? null;
      this.#draw();
    } catch (failure) {
      this.#fail(failure.message);
    }
  }

  async #toggleShelf() {
    try {
      this.#archived = this.#archived ? null : (await api.conversations(null, 'archived')).conversations;
      this.#fail(null);
    } catch (failure) {
      this.#fail(failure.message);
    }
    this.#draw();
  }

  #fail(message) {
    this.#error.textContent = message ?? '';
    this.#error.hidden = !message;
  }

  // local: names of conversations that this page knows of; the gateway may not.
  draw(current, local) {
    this.#current = current;
    this.#local = new Set([...local].filter((name) => !this.has(name)));
    this.#draw();
  }

  #draw() {
    this.#more.hidden = !this.#next || Boolean(this.#archived);
    this.#shelf.setAttribute('aria-pressed', String(Boolean(this.#archived)));
    const shown = this.#archived ?? [...[...this.#local].map((name) => ({ name, state: 'idle' })), ...this.#known];
    const groups = this.#archived ? [['archived', shown]] : grouped(shown, Date.now());
    const shared = { current: this.#current, renaming: this.#renaming, acts: this.#acts, local: this.#local, titleOf: (name) => this.titleOf(name) };
    render(html`<${List} groups=${groups} ...${shared} />`, this.#list);
  }
}
