// What the buttons of the page do.

import * as api from './api.js';
import { ask } from './dialogs/question.js';
import { closePanel, openPanel, replacePanel, showPanel } from './dialogs/panel.js';
import { t } from './language.js';
import { forget, readWhoAnswers, showAsked, startNew } from './opened.js';
import { newId } from './outbox.js';
import { jumpTo } from './reading.js';
import { draft, edit, outbox, send } from './sending.js';
import { list } from './sidebar/list.js';
import { focusText, state } from './state.js';
import { html } from './ui.js';

// Returns why an answer was not taken.
async function answer(id, given) {
  const conversation = state.current;
  try {
    conversation.learn(await api.give(id, given));
    return null;
  } catch (failure) {
    if (failure.status === undefined) throw failure;
    // Somebody was faster: the card shows who, and this says what became of the late answer.
    const isLate = failure.code === 'already_answered';
    if (isLate) conversation.look(id).catch(() => {});
    return { message: failure.message, isLate };
  }
}

async function mark(call, happened) {
  const conversation = state.current;
  try {
    await conversation.mark(call, happened);
    return null;
  } catch (failure) {
    if (failure.status === undefined) throw failure;
    if (failure.code === 'already_marked') conversation.read();
    return failure.message;
  }
}

// What is offered in the rows of a conversation.
export const rowActs = {
  sendAgain: (id) => outbox.again(id),
  discard: (id) => outbox.drop(id),
  retry: () => send('/retry'),
  goOn: () => send('/continue'),
  answer,
  mark,
  say: (word) => send(word),
  again: (turn) => send(`/retry ${turn}`),
  branch: (turn) => send(`/branch ${turn}`),
  edit,
  why: (turn) => openPanel(t('why'), async () => (await import('./dialogs/why.js')).explained(turn)),
};

// Why something could not be done is said below the text box.
async function attempt(act) {
  try {
    await act();
    draft.fail('');
  } catch (failure) {
    if (failure.status === undefined) throw failure;
    draft.fail(failure.message);
  }
}

function remove(name) {
  ask({
    id: 'remove',
    title: t('delete_this_conversation'),
    text: t('what_runs_there_is_stopped'),
    no: t('keep_it'),
    yes: t('delete'),
    act: async () => {
      await api.post(name, { text: '/reset', id: newId() });
      await api.shelve(name, { hidden: true });
      forget(name);
    },
  });
}

// What is offered in the menus of the sidebar.
export const listActs = {
  rename: (name, title) => attempt(() => api.post(name, { text: `/title ${title}`, id: newId() })),
  put: (name, wish) =>
    attempt(async () => {
      await api.shelve(name, wish);
      if (wish.archived && name === state.current?.name) startNew();
    }),
  remove,
};

// One may type at once: the first field hands over what is in it.
export async function openSearch() {
  const which = showPanel(t('search'), html`<input type="search" id="first-words" aria-label=${t('search_in_all_conversations')} />`);
  const field = document.getElementById('first-words');
  field.focus();
  const { Search } = await import('./dialogs/search.js');
  replacePanel(which, t('search'), html`<${Search} first=${field.value} titleOf=${(name) => list.titleOf(name)} go=${goTo} close=${closePanel} />`);
}

async function goTo({ conversation, person = '', message, session }) {
  closePanel();
  // Operators also find what others have said, in conversations that have other names here.
  const isTheirs = person && state.principal && person !== state.principal;
  const name = isTheirs ? `http:${person}:${conversation}` : conversation;
  history.pushState(null, '', `#c=${encodeURIComponent(name)}`);
  showAsked();
  if (!(await jumpTo(state.current, message, session))) readSession(session, message);
}

function resume(session) {
  closePanel();
  send(`/resume ${session}`);
  focusText();
}

function readSession(id, message = null) {
  openPanel(t('session'), async () => {
    const { Session } = await import('./dialogs/sessions.js');
    return html`<${Session} key=${id} id=${id} message=${message} resume=${resume} />`;
  });
}

export function openSessions() {
  openPanel(t('sessions_of_this_conversation'), async () => {
    const { Sessions } = await import('./dialogs/sessions.js');
    if (state.current.isNew) return html`<p>${t('this_chat_has_no_sessions')}</p>`;
    return html`<${Sessions} name=${state.current.name} resume=${resume} read=${readSession} />`;
  });
}

export function openPermissions() {
  openPanel(t('permissions_title'), async () => {
    const { Permissions, readPermissions } = await import('./dialogs/permissions.js');
    const { isNew, name, transcript } = state.current;
    const where = isNew ? '' : name;
    return html`<${Permissions} ...${await readPermissions(where)} session=${transcript.session} />`;
  });
}

export function openAnswering() {
  const say = (words) => {
    closePanel();
    send(words);
  };
  openPanel(t('who_answers_here'), async () => {
    const [{ Choices }] = await Promise.all([import('./dialogs/choices.js'), readWhoAnswers()]);
    return html`<${Choices} known=${state.answering} say=${say} />`;
  });
}

export function openSettings() {
  openPanel(t('settings'), async () => html`<${(await import('./dialogs/settings.js')).Settings} />`);
}
