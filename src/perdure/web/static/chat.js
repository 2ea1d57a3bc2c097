// The page: signs in, shows one conversation, and sends what is written.

import * as api from './api.js';
import { Answering } from './answering.js';
import { isReady, ready } from './blocks/text.js';
import { Composer } from './composer.js';
import { Conversation } from './conversation.js';
import { drawEmpty } from './empty.js';
import { drawIcons } from './icons.js';
import { Log, loaded } from './log.js';
import { Outbox, newId } from './outbox.js';
import { Panel } from './panel.js';
import { isActive, rowsOf } from './rows.js';
import { Scroller } from './scroll.js';
import { Sidebar } from './sidebar.js';
import * as signin from './signin.js';
import { Span, partOf } from './span.js';
import { html } from './ui.js';
import { whenOf } from './words.js';
import { t, translate } from './language.js';

const CALM_MS = 700;
const OPEN_MAX = 20;
const SKEW_MS = 60_000;
const LATER_PX = 400;
const FOUND_MS = 2500;
const SEARCHED_MAX = 1000;

const element = (id) => document.getElementById(id);
const opened = new Map();
let current = null;
let agents = [];
let isDrawDue = false;
let lostSince = null;

const outbox = new Outbox({ post: api.post, taken, changed: redraw });
const sidebar = new Sidebar({ create: startNew, refused: signIn, acts: { rename, put, remove }, changed: listed });
const span = new Span();
const scroller = new Scroller({ top: showEarlier, bottom: showLater, followed });
const composer = new Composer({ submit: send, up: editLast });
const panel = new Panel();
const answering = new Answering({ panel, where, say: (words) => send(words, []) });
const log = new Log(element('log'), {
  sendAgain: (id) => outbox.again(id),
  discard: (id) => outbox.drop(id),
  retry: () => send('/retry', []),
  goOn: () => send('/continue', []),
  answer,
  mark,
  say: (word) => send(word, []),
  again: (turn) => send(`/retry ${turn}`, []),
  branch: (turn) => send(`/branch ${turn}`, []),
  edit,
  why: (turn) => panel.open(t('Why'), async () => (await import('./why.js')).explained(turn)),
});

function newName() {
  return `chat-${Date.now().toString(36)}${newId().slice(0, 4)}`;
}

function fragment() {
  return new URLSearchParams(location.hash.slice(1));
}

function startNew() {
  location.hash = 'new';
  sidebar.toggle(false);
  composer.focus();
}

function conversationOf(name) {
  let conversation = opened.get(name);
  if (!conversation) {
    conversation = new Conversation(name, {
      changed: (kind) => changed(conversation, kind),
      appeared: (messages) => match(name, messages),
      stored: (messages) => settle(name, new Set(messages.map(({ id }) => id))),
    });
  }
  opened.delete(name);
  opened.set(name, conversation);
  if (opened.size > OPEN_MAX) opened.delete(opened.keys().next().value);
  return conversation;
}

function show(name) {
  if (current?.name === name) return;
  current?.close();
  current = conversationOf(name);
  const isUnsent = !outbox.of(name).some((item) => item.status === 'accepted');
  if (!current.transcript.isLoaded && outbox.of(name).length && isUnsent && !sidebar.has(name)) current.begin();
  present(name);
}

function showNew() {
  if (isBlank()) return;
  current?.close();
  current = conversationOf(newName());
  current.begin();
  present(null);
}

const isBlank = () => Boolean(current?.isNew) && !outbox.of(current.name).length;

function present(draft) {
  lostSince = null;
  log.clear();
  span.follow();
  composer.show(draft);
  current.open();
  scroller.follow();
  sidebar.toggle(false);
  answering.look();
  listed();
}

// What an answer may need is loaded while its question is written.
function prepare() {
  ready();
  loaded().catch(() => {});
}

function send(text, attachments) {
  prepare();
  const { name, transcript } = current;
  if (isBlank()) {
    history.replaceState(null, '', `#c=${encodeURIComponent(name)}`);
    composer.belongTo(name);
  }
  if (!text.startsWith('/') && !transcript.entries.length) sidebar.remember(name, text || attachments[0].name);
  outbox.add(name, text, attachments);
  scroller.follow();
}

// The words of a message are changed in the text box; the new ones are asked from its place.
function edit(turn) {
  const entry = current?.transcript.userOf(turn);
  if (entry) composer.edit(turn, entry.text);
}

// The last message that the person has said here, if it can be asked again.
function editLast() {
  const last = current?.transcript.entries.findLast((entry) => entry.role === 'user' && entry.turn !== null);
  if (last) edit(last.turn);
  return Boolean(last);
}

// What was taken back is most often written anew.
function undoneIn(reply) {
  return /^Undone(?:, \d+ turns)?:\n\n(.+)$/s.exec(reply)?.[1] ?? '';
}

function taken(item, answer) {
  const conversation = opened.get(item.conversation);
  if (conversation) {
    if (answer.command) {
      const { message: id, reply, choices } = answer;
      if (reply) conversation.transcript.notice(reply, { id, command: item.text, choices });
      if (reply && conversation === current) composer.offer(undoneIn(reply));
    }
    conversation.isNew = false;
    if (conversation === current) conversation.open();
    if (answer.command && conversation === current) answering.look();
    // Its place in the transcript may have been read before this acknowledgement came.
    if (answer.command || conversation.transcript.find(answer.message)) conversation.read();
  }
  redraw();
}

// The gateway shows a message, perhaps before its acknowledgement arrived or instead of one that
// was lost. The tried message with the same words is taken for it until the acknowledgement says.
function match(name, messages) {
  const items = outbox.of(name);
  const ids = new Set(items.map((item) => item.message).filter(Boolean));
  for (const message of messages) {
    if (message.role !== 'user' || ids.has(message.id)) continue;
    const at = whenOf(message.at)?.getTime() ?? Infinity;
    const isOld = (item) => at < item.at - SKEW_MS;
    const twin = items.find(
      (item) => item.status === 'sending' && item.isTried && !item.message && item.text === message.text && !isOld(item),
    );
    if (!twin) continue;
    ids.add(message.id);
    outbox.note(twin.id, { message: message.id });
  }
}

function settle(name, shown) {
  for (const item of outbox.of(name)) {
    if (item.status !== 'accepted') continue;
    if (shown.has(item.message)) outbox.drop(item.id);
    else if (item.turn) dropIfSettled(item);
  }
}

// Accepted, and not in the transcript: queued, or undone since.
async function dropIfSettled(item) {
  try {
    const turn = await api.turn(item.turn);
    if (turn.state === 'settled') outbox.drop(item.id);
  } catch (failure) {
    if (failure.status === 404) outbox.drop(item.id);
  }
}

function where() {
  return { name: current.isNew ? '' : current.name, session: current.transcript.session };
}

// Returns why an answer was not taken.
async function answer(id, given) {
  const conversation = current;
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
  const conversation = current;
  try {
    await conversation.mark(call, happened);
    return null;
  } catch (failure) {
    if (failure.status === undefined) throw failure;
    if (failure.code === 'already_marked') conversation.read();
    return failure.message;
  }
}

async function stop() {
  const { transcript } = current;
  if (!transcript.turn) return;
  const isFocused = document.activeElement === element('stop');
  element('stop').disabled = true;
  try {
    await api.stop(transcript.turn);
    composer.fail(null);
  } catch (failure) {
    composer.fail(failure.message);
  } finally {
    element('stop').disabled = false;
  }
  // The button is about to go, and must not take the focus with it.
  if (isFocused || document.activeElement === document.body) composer.focus();
}

function changed(conversation, kind) {
  if (kind === 'refused') {
    signIn();
    return;
  }
  if (conversation === current && (kind === 'outcome' || kind === 'read')) answering.look();
  if (kind === 'state') sidebar.named(conversation.name, conversation.transcript.title);
  if (conversation !== current) return;
  if (kind === 'connection') {
    if (current.connection === 'lost') lostSince ??= performance.now();
    else if (current.connection !== 'connecting') lostSince = null;
    if (lostSince !== null) setTimeout(redraw, CALM_MS);
    if (current.connection === 'open') outbox.wake();
  }
  redraw();
}

function redraw() {
  if (isDrawDue) return;
  isDrawDue = true;
  requestAnimationFrame(() => {
    isDrawDue = false;
    if (current) draw();
  });
}

// What is followed shows its newest part, but fills the screen.
function showEarlier() {
  if (!current) return;
  const { entries } = current.transcript;
  if (scroller.isFollowing && span.isFull(entries)) return;
  if (!scroller.isFollowing && span.earlier(entries)) redraw();
  else current.older();
}

// What is near the end of what is drawn. True: there is more.
function showLater(rest) {
  if (!current) return false;
  const { entries } = current.transcript;
  if (rest > LATER_PX || span.of(entries).end === entries.length) return false;
  if (span.later(entries)) redraw();
  return true;
}

function followed(isFollowing) {
  if (isFollowing) span.follow();
  else if (current) span.hold(current.transcript.entries);
  redraw();
}

let isProseTried = false;

// Nobody wants to see a page of text twice, first as it is and then as it is meant. But what comes
// now is shown now.
function isProseReady() {
  if (isReady() || isProseTried) return true;
  if (isActive(current.transcript) || outbox.of(current.name).length) {
    ready();
    return true;
  }
  ready().then(() => {
    isProseTried = true;
    redraw();
  });
  return false;
}

function draw() {
  const { name, transcript } = current;
  if (transcript.entries.length && !isProseReady()) return;
  const pending = outbox.of(name);
  const rows = rowsOf(partOf(transcript, span.of(transcript.entries)), pending);
  scroller.around(() => {
    log.draw(rows);
    element('older').hidden = !current.isLoadingOlder;
    const isEmpty = !rows.length && transcript.isLoaded && !current.problem;
    if (isEmpty && element('empty').hidden) drawEmpty(element('empty'), agents);
    element('empty').hidden = !isEmpty;
  });
  element('stop').hidden = !(isActive(transcript) && transcript.turn);
  const first = transcript.isWhole && transcript.entries.find((entry) => entry.role === 'user');
  if (first) sidebar.remember(name, first.text);
  drawHead(name);
  sidebar.draw(name, new Set([...(isBlank() ? [] : [name]), ...outbox.conversations()]));
}

function drawHead(name) {
  const title = isBlank() ? t('New chat') : sidebar.titleOf(name);
  element('title').textContent = title;
  document.title = title === t('New chat') ? 'Perdure' : `${title} · Perdure`;
  // A blink of the connection is nobody's business.
  const isLost = lostSince !== null && performance.now() - lostSince >= CALM_MS;
  const lost = navigator.onLine ? t('Reconnecting…') : t('Offline: reconnecting when the network is back…');
  const words = isLost ? lost : (current.problem ?? '');
  const connection = element('connection');
  if (connection.textContent !== words) connection.textContent = words;
  connection.classList.toggle('lost', isLost);
  connection.classList.toggle('failed', !isLost && Boolean(current.problem));
}

// What is looked at is not unread.
function listed() {
  const row = current && sidebar.find(current.name);
  if (row?.unread && !document.hidden) api.shelve(row.name, { seen: true }).catch(() => {});
  redraw();
}

// What a menu of the sidebar offers. Why something could not be done is said below the text box.
async function attempt(act) {
  try {
    await act();
    composer.fail(null);
  } catch (failure) {
    if (failure.status === undefined) throw failure;
    composer.fail(failure.message);
  }
}

function rename(name, title) {
  attempt(() => api.post(name, { text: `/title ${title}`, id: newId() }));
}

function put(name, wish) {
  attempt(async () => {
    await api.shelve(name, wish);
    if (wish.archived && name === current?.name) startNew();
  });
}

function remove(name) {
  const dialog = element('remove');
  const [no, yes] = dialog.querySelectorAll('button');
  element('remove-error').textContent = '';
  no.onclick = () => dialog.close();
  yes.onclick = async () => {
    yes.disabled = true;
    try {
      await api.post(name, { text: '/reset', id: newId() });
      await api.shelve(name, { hidden: true });
      dialog.close();
      opened.delete(name);
      sidebar.gone(name);
      if (name === current?.name) startNew();
    } catch (failure) {
      if (failure.status === undefined) throw failure;
      element('remove-error').textContent = failure.message;
    }
    yes.disabled = false;
  };
  dialog.showModal();
}

// One may type at once: the first field hands over what is in it.
async function openSearch() {
  const which = panel.show(t('Search'), html`<input type="search" id="first-words" aria-label=${t('Search in all conversations')} />`);
  const field = element('first-words');
  field.focus();
  const { Search } = await import('./search.js');
  panel.replace(which, t('Search'), html`<${Search} first=${field.value} titleOf=${(name) => sidebar.titleOf(name)} go=${goTo} />`);
  panel.styled();
}

function goTo({ conversation, message, session }) {
  panel.close();
  history.pushState(null, '', `#c=${encodeURIComponent(conversation)}`);
  routed();
  jump(current, message, session);
}

// Shows a message: in its place, or, where it does not stand any more, in its session.
async function jump(conversation, message, session) {
  const { transcript } = conversation;
  await conversation.loaded();
  while (conversation === current && !transcript.find(message) && !transcript.isWhole && session === transcript.session) {
    if (!(await conversation.older(SEARCHED_MAX))) break;
  }
  if (conversation !== current) return;
  if (!transcript.find(message)) {
    readSession(session, message);
    return;
  }
  scroller.leave();
  span.around(transcript.entries, message);
  draw();
  const row = element('log').querySelector(`[data-key="${CSS.escape(message)}"]`);
  row?.scrollIntoView({ block: 'center' });
  row?.classList.add('found');
  setTimeout(() => row?.classList.remove('found'), FOUND_MS);
}

function resume(session) {
  panel.close();
  send(`/resume ${session}`, []);
  composer.focus();
}

function readSession(id, message = null) {
  panel.open('Session', async () => {
    const { Session } = await import('./sessions.js');
    return html`<${Session} key=${id} id=${id} message=${message} resume=${resume} />`;
  });
}

function openSessions() {
  panel.open(t('Sessions of this conversation'), async () => {
    const { Sessions } = await import('./sessions.js');
    if (current.isNew) return html`<p>${t('This chat has no sessions yet.')}</p>`;
    return html`<${Sessions} name=${current.name} resume=${resume} read=${readSession} />`;
  });
}

let permissions = null;

async function openPermissions() {
  const { Permissions } = await import('./permissions.js');
  permissions ??= new Permissions({ where });
  await panel.styled();
  permissions.open();
}

function signIn() {
  if (signin.isShown()) return;
  current?.close();
  sidebar.close();
  signin.show(api.token() ? t('The gateway did not accept the token. It may have been changed.') : '');
}

async function enter() {
  if (!api.token()) {
    signIn();
    return;
  }
  try {
    await sidebar.load();
  } catch (failure) {
    if (failure.status === 401) {
      api.forgetToken();
      signin.show(t('The gateway did not accept this token.'));
      return;
    }
    if (signin.isShown()) {
      signin.complain(failure.message);
      return;
    }
  }
  begin();
}

// Nothing is shown before there is a conversation to write to: what is typed must have a place.
function begin() {
  element('signin').hidden = true;
  element('app').hidden = false;
  api.status().then(
    (status) => {
      agents = Array.isArray(status.agents) ? status.agents : [];
      if (!element('empty').hidden) drawEmpty(element('empty'), agents);
    },
    () => {},
  );
  if (current) current.open();
  sidebar.run();
  routed();
  outbox.wake();
  composer.focus();
}

function routed() {
  if (element('app').hidden) return;
  const asked = fragment();
  const name = asked.get('c') ?? (asked.has('new') ? null : sidebar.newest);
  history.replaceState(null, '', name ? `#c=${encodeURIComponent(name)}` : '#new');
  if (name) show(name);
  else showNew();
}

function nudge() {
  if (document.hidden || element('app').hidden) return;
  current?.nudge();
  sidebar.nudge();
  outbox.wake();
  listed();
}

function keyed(event) {
  if (event.key === 'k' && (event.ctrlKey || event.metaKey) && !element('app').hidden && !document.querySelector('dialog[open]')) {
    event.preventDefault();
    openSearch();
    return;
  }
  if (event.defaultPrevented || event.isComposing || element('app').hidden || document.querySelector('dialog[open]')) return;
  if (event.key === 'Escape' && isActive(current?.transcript ?? {}) && !composer.isEditing) stop();
}

translate(document.body);
drawIcons(document);
addEventListener('keydown', keyed);
element('stop').addEventListener('click', stop);
signin.listen(enter);
addEventListener('hashchange', () => {
  const given = signin.takeGiven();
  if (given !== null && given !== api.token()) signin.consider(given, enter);
  routed();
});
addEventListener('online', nudge);
addEventListener('offline', redraw);
document.addEventListener('visibilitychange', nudge);
element('text').addEventListener('input', prepare, { once: true });
element('search').addEventListener('click', openSearch);
element('open-sessions').addEventListener('click', openSessions);
element('open-permissions').addEventListener('click', openPermissions);

const given = signin.takeGiven();
if (given === null) enter();
else signin.consider(given, enter);
