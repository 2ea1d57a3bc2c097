// What is being written: a text that survives a reload, its files with their uploads, and which
// earlier message it changes.

import * as api from '../api.js';
import { t } from '../language.js';
import * as storage from '../storage.js';

const DRAFT = 'perdure.draft.';

export class Draft {
  text = '';
  files = [];
  problem = '';
  // Counts the changes.
  version = 0;
  #edited = null;
  #conversation = '';
  #changed;

  constructor(changed) {
    this.#changed = changed;
  }

  get isEditing() {
    return this.#edited !== null;
  }

  get isEmpty() {
    return !this.text && !this.files.length;
  }

  get canSend() {
    return this.files.every((file) => file.media) && Boolean(this.text.trim() || this.files.length);
  }

  // The draft of a chat that does not exist yet belongs to whichever new chat comes next.
  show(conversation) {
    this.#conversation = conversation ?? '';
    this.#set({ text: storage.read(DRAFT + this.#conversation) ?? '', files: [], problem: '' });
    this.#edited = null;
  }

  belongTo(conversation) {
    this.#conversation = conversation;
  }

  type(text) {
    this.#set({ text });
    if (this.#edited) return;
    if (text) storage.write(DRAFT + this.#conversation, text);
    else storage.remove(DRAFT + this.#conversation);
  }

  // Text to go on from, unless something is being written already.
  offer(text) {
    if (text && this.isEmpty) this.type(text);
  }

  // Other words for what was said in a turn. What was being written comes back afterwards.
  edit(turn, text) {
    this.#edited = { turn, draft: this.#edited?.draft ?? this.text };
    this.#set({ text });
  }

  stopEditing() {
    if (!this.#edited) return;
    const { draft } = this.#edited;
    this.#edited = null;
    this.type(draft);
  }

  fail(problem) {
    if (problem !== this.problem) this.#set({ problem });
  }

  // What is to be sent; afterwards the draft is empty.
  take() {
    const text = this.text.trim();
    if (this.#edited) {
      const { turn } = this.#edited;
      this.stopEditing();
      return { text: `/edit ${turn} ${text}`, attachments: [] };
    }
    const attachments = this.files.map(({ media, name, mime }) => ({ media, name, mime }));
    this.#set({ files: [], problem: '' });
    this.type('');
    return { text, attachments };
  }

  attach(sources) {
    const files = Array.from(sources, (source) => ({ source, name: source.name || t('pasted'), mime: source.type, media: null, error: null }));
    this.#set({ files: [...this.files, ...files] });
    for (const file of files) this.upload(file);
  }

  remove(file) {
    this.#set({ files: this.files.filter((other) => other !== file) });
  }

  async upload(file) {
    this.#note(file, { error: null });
    try {
      this.#note(file, { media: (await api.upload(file.source)).id });
    } catch (failure) {
      this.#note(file, { error: failure.message });
    }
  }

  #note(file, change) {
    Object.assign(file, change);
    this.#set({});
  }

  #set(change) {
    Object.assign(this, change);
    this.version += 1;
    this.#changed();
  }
}
