// The message box: text with a draft that survives a reload, attachments, and their uploads.

import * as api from './api.js';
import { CommandMenu } from './commands.js';
import { button, make } from './elements.js';
import { icon } from './icons.js';
import * as storage from './storage.js';
import { t } from './language.js';

const DRAFT = 'perdure.draft.';
const TALLEST_PX = 260;

export class Composer {
  #form = document.getElementById('composer');
  #text = document.getElementById('text');
  #send = document.getElementById('send');
  #chips = document.getElementById('chips');
  #error = document.getElementById('composer-error');
  #files = [];
  #conversation = null;
  #menu = new CommandMenu(this.#text, { chosen: (text) => this.#write(text) });
  #submit;
  #up;
  #edited = null;
  #recorder = null;
  #editing = document.getElementById('editing');

  // up() is called for the arrow in an empty text box, and tells whether it meant something.
  constructor({ submit, up }) {
    this.#submit = submit;
    this.#up = up;
    document.getElementById('stop-editing').addEventListener('click', () => this.#stopEditing());
    const record = document.getElementById('record');
    record.hidden = !(navigator.mediaDevices?.getUserMedia && window.MediaRecorder);
    record.addEventListener('click', () => this.#record(record));
    const picker = document.getElementById('files');
    document.getElementById('attach').addEventListener('click', () => picker.click());
    picker.addEventListener('change', () => {
      this.#attach(picker.files);
      picker.value = '';
    });
    this.#form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#go();
    });
    this.#text.addEventListener('input', () => this.#typed());
    this.#text.addEventListener('keydown', (event) => this.#key(event));
    this.#text.addEventListener('paste', (event) => this.#paste(event));
    this.#dropZone(document.getElementById('chat'), document.getElementById('drop'));
  }

  // The draft of a chat that does not exist yet belongs to whichever new chat comes next.
  show(conversation) {
    this.#conversation = conversation ?? '';
    this.#text.value = storage.read(DRAFT + this.#conversation) ?? '';
    this.#files = [];
    this.#edited = null;
    this.#editing.hidden = true;
    this.fail(null);
    this.#drawChips();
    this.#fit();
    this.#menu.close();
  }

  get isEditing() {
    return this.#edited !== null;
  }

  // Other words for what was said in a turn. What was being written comes back afterwards.
  edit(turn, text) {
    const draft = this.#edited?.draft ?? this.#text.value;
    this.#edited = { turn, draft };
    this.#editing.hidden = false;
    this.#text.value = text;
    this.#fit();
    this.#text.focus();
    this.#text.setSelectionRange(text.length, text.length);
  }

  #stopEditing() {
    if (!this.#edited) return;
    const { draft } = this.#edited;
    this.#edited = null;
    this.#editing.hidden = true;
    this.#write(draft);
    this.#text.focus();
  }

  belongTo(conversation) {
    this.#conversation = conversation;
  }

  focus() {
    this.#text.focus();
  }

  // Text to go on from, unless something is being written already.
  offer(text) {
    if (text && !this.#text.value && !this.#files.length) this.#write(text);
  }

  fail(message) {
    this.#error.textContent = message ?? '';
    this.#error.hidden = !message;
  }

  #write(text) {
    this.#text.value = text;
    this.#text.setSelectionRange(text.length, text.length);
    this.#typed();
  }

  #typed() {
    if (this.#edited) {
      this.#fit();
      return;
    }
    if (this.#text.value) storage.write(DRAFT + this.#conversation, this.#text.value);
    else storage.remove(DRAFT + this.#conversation);
    this.#fit();
    this.#menu.update();
  }

  // The text box grows with its text; a height cannot be written in the style sheet.
  #fit() {
    this.#text.style.height = 'auto';
    this.#text.style.height = `${Math.min(this.#text.scrollHeight, TALLEST_PX)}px`;
    const isReady = this.#files.every((file) => file.media);
    this.#send.disabled = !isReady || (!this.#text.value.trim() && !this.#files.length);
  }

  #key(event) {
    // While an input method composes, Enter chooses a character.
    if (event.isComposing) return;
    if (this.#menu.key(event)) {
      event.preventDefault();
      return;
    }
    if (event.key === 'Escape' && this.#edited) {
      event.preventDefault();
      this.#stopEditing();
    } else if (event.key === 'ArrowUp' && !this.#text.value && !this.#files.length && this.#up()) event.preventDefault();
    if (event.key !== 'Enter' || event.shiftKey || this.#isTouched()) return;
    event.preventDefault();
    this.#go();
  }

  // A keyboard on a screen has no Shift+Enter: there Enter is a new line, and the button sends.
  #isTouched() {
    return matchMedia('(pointer: coarse) and (hover: none)').matches;
  }

  #go() {
    this.#fit();
    if (this.#send.disabled) return;
    if (this.#edited) {
      const { turn } = this.#edited;
      const words = this.#text.value.trim();
      this.#stopEditing();
      this.#submit(`/edit ${turn} ${words}`, []);
      return;
    }
    const attachments = this.#files.map(({ media, name, mime }) => ({ media, name, mime }));
    const text = this.#text.value.trim();
    this.#text.value = '';
    this.#files = [];
    this.fail(null);
    this.#drawChips();
    this.#typed();
    this.#submit(text, attachments);
  }

  async #record(button) {
    const { Recorder } = await import('./voice.js');
    this.#recorder ??= new Recorder(button, { taken: (file) => this.#attach([file]), failed: (words) => this.fail(words) });
    this.#recorder.toggle();
  }

  #paste(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    this.#attach(files);
  }

  #dropZone(zone, veil) {
    const hasFiles = (event) => event.dataTransfer?.types.includes('Files');
    zone.addEventListener('dragover', (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      veil.hidden = false;
    });
    zone.addEventListener('dragleave', (event) => {
      if (!zone.contains(event.relatedTarget)) veil.hidden = true;
    });
    zone.addEventListener('drop', (event) => {
      veil.hidden = true;
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.#attach(event.dataTransfer.files);
    });
  }

  #attach(files) {
    for (const source of files) {
      const file = { source, name: source.name || 'pasted', mime: source.type, media: null, error: null };
      this.#files.push(file);
      this.#upload(file);
    }
    this.#drawChips();
  }

  async #upload(file) {
    file.error = null;
    this.#drawChips();
    try {
      file.media = (await api.upload(file.source)).id;
    } catch (failure) {
      file.error = failure.message;
    }
    this.#drawChips();
  }

  #drawChips() {
    this.#chips.replaceChildren(...this.#files.map((file) => this.#chip(file)));
    this.#chips.hidden = !this.#files.length;
    this.#fit();
  }

  // A picture is shown before it is sent.
  #thumbnail(file) {
    if (!/^image\/(png|jpeg|gif|webp|avif)$/.test(file.mime)) return null;
    file.shown ??= URL.createObjectURL(file.source);
    const image = make('img', 'thumbnail');
    image.src = file.shown;
    image.alt = '';
    return image;
  }

  #chip(file) {
    const state = file.error ?? (file.media ? '' : 'uploading…');
    const chip = make('li', `chip${file.error ? ' failed' : ''}`, this.#thumbnail(file) ?? icon('file'), make('span', 'chip-name', file.name), make('span', 'chip-state', state));
    if (file.error) chip.append(button(t('Retry'), 'link', () => this.#upload(file)));
    const away = button('', 'icon tiny', () => {
      this.#files = this.#files.filter((other) => other !== file);
      this.#drawChips();
    });
    away.setAttribute('aria-label', `Remove ${file.name}`);
    away.append(icon('close'));
    chip.append(away);
    return chip;
  }
}
