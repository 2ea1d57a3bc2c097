// Messages on their way to the gateway. Each keeps its id from the first try to the last, so a
// repeat after a lost answer, a reload or a restart is the same message to the gateway.
//
// sending -> accepted (the gateway has it, the transcript does not show it yet) -> gone
// sending -> refused  (the person decides)

import * as storage from './storage.js';

const PREFIX = 'perdure.outbox.';
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

export function newId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  // Absent where the page is not a secure context, such as plain http on a home network.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export class Outbox {
  #items = new Map();
  #pumps = new Map();
  #wakes = new Set();
  #post;
  #taken;
  #changed;

  // taken(item, answer) is called once per message, when the gateway has acknowledged it.
  constructor({ post, taken, changed }) {
    this.#post = post;
    this.#taken = taken;
    this.#changed = changed;
    const stored = storage.keys(PREFIX).map((key) => storage.readJson(key, null));
    for (const item of stored.filter(Boolean).sort((a, b) => a.at - b.at)) {
      // Before the reload it may have left this machine.
      this.#items.set(item.id, { ...item, isTried: true });
    }
  }

  of(conversation) {
    return [...this.#items.values()].filter((item) => item.conversation === conversation);
  }

  conversations() {
    return new Set([...this.#items.values()].map((item) => item.conversation));
  }

  add(conversation, text, attachments = []) {
    const last = Math.max(0, ...[...this.#items.values()].map((item) => item.at));
    const at = Math.max(Date.now(), last + 1);
    this.#keep({ id: newId(), conversation, text, attachments, at, status: 'sending', isTried: false });
    this.wake();
  }

  again(id) {
    const item = this.#items.get(id);
    if (!item) return;
    // A refused id may be bound to another body for good; nothing of this one was stored.
    this.drop(id);
    this.#keep({ ...item, id: newId(), status: 'sending', error: null, isTried: false });
    this.wake();
  }

  drop(id) {
    this.#items.delete(id);
    storage.remove(PREFIX + id);
    this.#changed();
  }

  note(id, change) {
    const item = this.#items.get(id);
    if (item) this.#keep({ ...item, ...change });
  }

  wake() {
    for (const wake of [...this.#wakes]) wake();
    for (const conversation of this.conversations()) this.#pump(conversation);
  }

  #keep(item) {
    this.#items.set(item.id, item);
    storage.writeJson(PREFIX + item.id, item);
    this.#changed();
  }

  // One at a time, oldest first: what was typed first is asked first.
  async #pump(conversation) {
    if (this.#pumps.has(conversation)) return;
    this.#pumps.set(conversation, true);
    let wait_ms = FIRST_WAIT_MS;
    try {
      for (;;) {
        const item = this.of(conversation).find(({ status }) => status === 'sending');
        if (!item) return;
        const failure = await this.#try(item);
        if (!failure) {
          wait_ms = FIRST_WAIT_MS;
          continue;
        }
        if (failure.status === 401) return;
        const woken = await this.#pause(Math.max(wait_ms, failure.after_ms));
        wait_ms = woken ? FIRST_WAIT_MS : Math.min(wait_ms * 2, LONGEST_WAIT_MS);
      }
    } finally {
      this.#pumps.delete(conversation);
    }
  }

  async #try(item) {
    this.note(item.id, { isTried: true });
    const attachments = item.attachments.map(({ media, url }) => (media ? { media } : { url }));
    const body = { text: item.text, id: item.id, ...(attachments.length ? { attachments } : {}) };
    try {
      const answer = await this.#post(item.conversation, body);
      this.#accept(item, answer);
      return null;
    } catch (failure) {
      if (failure.status === undefined) throw failure;
      if (failure.retryable || failure.status === 401) return failure;
      this.note(item.id, { status: 'refused', error: failure.message });
      return null;
    }
  }

  #accept(item, answer) {
    if (answer.command) this.drop(item.id);
    else this.note(item.id, { status: 'accepted', message: answer.message, turn: answer.turn });
    this.#taken(item, answer);
  }

  #pause(wait_ms) {
    return new Promise((resolve) => {
      const done = (woken) => {
        clearTimeout(timer);
        this.#wakes.delete(wake);
        resolve(woken);
      };
      const wake = () => done(true);
      const timer = setTimeout(() => done(false), wait_ms);
      this.#wakes.add(wake);
    });
  }
}
