// The message box: what is being written, and the buttons beside it.

import { t } from '../language.js';
import { Button, Icon, html, remembered, useEffect, useLayoutEffect, useRef, useState } from '../ui.js';
import { Chips } from './chips.js';
import { CommandList, rowId } from './commands.js';

const TALLEST_PX = 260;
const TICK_MS = 250;
const canRecord = Boolean(navigator.mediaDevices?.getUserMedia && window.MediaRecorder);

// A keyboard on a screen has no Shift+Enter: there Enter is a new line, and the button sends.
const isTouched = () => matchMedia('(pointer: coarse) and (hover: none)').matches;

function Attach({ draft }) {
  const picker = useRef(null);
  const picked = () => {
    draft.attach(picker.current.files);
    picker.current.value = '';
  };
  return html`
    <input id="files" type="file" multiple hidden tabindex="-1" aria-hidden="true" ref=${picker} onChange=${picked} />
    <button type="button" class="icon" aria-label=${t('attach_files')} title=${t('attach_files')} onClick=${() => picker.current.click()}><${Icon} name="paperclip" /></button>`;
}

const clockOf = (s) => `${Math.floor(s / 60)}:${String(s % 60).padStart(2, '0')}`;

function Record({ draft }) {
  const [stop, setStop] = useState(null);
  const over = (file) => {
    setStop(null);
    draft.attach([file]);
  };
  const toggle = async () => {
    if (stop) {
      stop();
      return;
    }
    try {
      const { record } = await import('./voice.js');
      const stopping = await record(over);
      setStop(() => stopping);
      draft.fail('');
    } catch (failure) {
      draft.fail(failure.message);
    }
  };
  const [lasted_s, setLasted] = useState(0);
  useEffect(() => {
    if (!stop) return () => {};
    const begun = Date.now();
    setLasted(0);
    const timer = setInterval(() => setLasted(Math.floor((Date.now() - begun) / 1000)), TICK_MS);
    return () => clearInterval(timer);
  }, [stop]);
  const words = stop ? t('stop_recording') : t('record_a_voice_message');
  return html`<button id="record" type="button" class="icon" aria-label=${words} title=${words} aria-pressed=${String(Boolean(stop))} onClick=${toggle}><${Icon} name="mic" /></button>${stop ? html`<span class="lasted">${clockOf(lasted_s)}</span>` : null}`;
}

function Editing({ cancel }) {
  return html`<p class="editing"><span>${t('other_words_for_an_earlier')}</span><${Button} class="link" label=${t('cancel')} action=${cancel} /></p>`;
}

// The text box grows with its text; a height cannot be written in the style sheet.
function fit(field) {
  field.style.height = 'auto';
  field.style.height = `${Math.min(field.scrollHeight, TALLEST_PX)}px`;
}

function Field({ draft, commands, acts, submit }) {
  const field = useRef(null);
  const written = useRef(draft.text);
  useLayoutEffect(() => {
    fit(field.current);
    // What was put there by something else is gone on with at its end.
    if (draft.text !== written.current) field.current.setSelectionRange(draft.text.length, draft.text.length);
    written.current = draft.text;
  }, [draft.text]);
  const typed = (event) => {
    written.current = event.currentTarget.value;
    draft.type(written.current);
  };
  const keyed = (event) => {
    // While an input method composes, Enter chooses a character.
    if (event.isComposing) return;
    const isTaken =
      commands.key(event) ||
      (event.key === 'Escape' && draft.isEditing && acts.stopEditing()) ||
      (event.key === 'ArrowUp' && draft.isEmpty && acts.up()) ||
      (event.key === 'Enter' && !event.shiftKey && !isTouched() && submit());
    if (isTaken) event.preventDefault();
  };
  const pasted = (event) => {
    const files = event.clipboardData?.files ?? [];
    if (!files.length) return;
    event.preventDefault();
    draft.attach(files);
  };
  const { shown, active } = commands;
  return html`
    <label class="visually-hidden" for="text">${t('message')}</label>
    <textarea id="text" ref=${field} rows="1" dir="auto" placeholder=${t('message')} enterkeyhint=${isTouched() ? 'enter' : 'send'} value=${draft.text}
      aria-autocomplete="list" aria-haspopup="listbox" aria-controls="commands" aria-describedby="composer-error" aria-activedescendant=${shown.length ? rowId(active) : null}
      onInput=${typed} onKeyDown=${keyed} onPaste=${pasted} onFocus=${() => commands.watch(true)} onBlur=${() => commands.watch(false)}></textarea>`;
}

// `canStop` tells whether an answer is being written. acts: submit(text, attachments), stop(),
// stopEditing(), and up(), which tells whether the arrow in an empty text box meant something.
function drawComposer({ draft, commands, acts, canStop }) {
  const submit = () => {
    if (draft.canSend) {
      const { text, attachments } = draft.take();
      acts.submit(text, attachments);
    }
    return true;
  };
  const submitted = (event) => {
    event.preventDefault();
    submit();
  };
  return html`<form id="composer" class="composer" onSubmit=${submitted}>
    <div class="composer-box">
      <${CommandList} commands=${commands} />
      ${draft.isEditing ? html`<${Editing} cancel=${acts.stopEditing} />` : null}
      <${Chips} draft=${draft} />
      <${Field} draft=${draft} commands=${commands} acts=${acts} submit=${submit} />
      <div class="composer-row">
        <${Attach} draft=${draft} />
        ${canRecord ? html`<${Record} draft=${draft} />` : null}
        <span class="hint">${t('enter_to_send_shift_enter')}</span>
        <button id="stop" type="button" class="round stop" aria-label=${t('stop')} title=${t('stop_this_answer')} hidden=${!canStop} onClick=${acts.stop}><${Icon} name="stop" /></button>
        <button id="send" type="submit" class="round send" aria-label=${t('send')} title=${t('send')} disabled=${!draft.canSend}><${Icon} name="send" /></button>
      </div>
    </div>
    <p id="composer-error" class="error" role="alert" hidden=${!draft.problem}>${draft.problem}</p>
  </form>`;
}

export const Composer = remembered(drawComposer, (before, after) => before.version === after.version && before.canStop === after.canStop);
