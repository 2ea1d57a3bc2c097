// What one conversation looks like, folded from transcript pages and live events. Pure: no DOM,
// no network, no clock.

import { entryOf, isLikeQuestion, isLocal, newer, questionOf, storedEntry, textOf, withDelta } from './entries.js';
import { QUESTION } from './words.js';

// Among the entries of its turn, by when it was asked; behind all of them until that is known.
function placeOf({ turn, at }, entries) {
  const isBefore = (other) => other.turn === turn && (at === null || (other.at ?? 0) <= at);
  const last = entries.findLastIndex(isBefore);
  return last >= 0 ? last + 1 : entries.findIndex((other) => other.turn === turn);
}

// Of calls that are asked about at once, any may be asked about first: their questions stand as the
// calls do, or what is about to be clicked would change its place.
function inOrder(question, place, entries) {
  const calls = entries.flatMap(({ turn, calls: made }) => (turn === question.turn ? made.map(({ id }) => id) : []));
  const rank = calls.indexOf(question.call);
  if (rank < 0) return place;
  const isLater = ({ role, turn, call }) => role === 'approval' && turn === question.turn && calls.indexOf(call) > rank;
  const later = entries.findIndex(isLater);
  return later >= 0 ? Math.min(later, place) : place;
}

const placeAt = (stored, at) => stored.findLastIndex((entry) => at === null || (entry.at ?? 0) <= at) + 1;

// A command as it was typed says more than its name.
const longer = (a, b) => ((a?.length ?? 0) >= (b?.length ?? 0) ? a : b) ?? null;

const ACTIVE = new Set(['running', 'waiting', 'resume_pending']);

export const isActive = ({ state }) => ACTIVE.has(state);

export class Transcript {
  entries = [];
  outcomes = new Map();
  session = null;
  state = 'idle';
  head = undefined;
  turn = null;
  queued = 0;
  resumeReason = null;
  choices = [];
  title = undefined;
  effects = new Map();
  isLoaded = false;
  isWhole = false;
  tick = 0;
  #watched = null;
  #asked = null;

  find(id) {
    return this.entries.findLast((entry) => entry.id === id);
  }

  userOf(turn) {
    return this.entries.find((entry) => entry.turn === turn && entry.role === 'user');
  }

  // Nothing is stored yet, so there is nothing to read.
  begin() {
    this.isLoaded = true;
    this.isWhole = true;
  }

  // Fold one live event; true means: read the transcript again.
  apply(kind, data) {
    this.tick += 1;
    switch (kind) {
      case 'message': return this.#message(data);
      case 'delta': return this.#delta(data);
      case 'tool': return this.#tool(data);
      case 'outcome': return this.#outcome(data);
      case 'state': return this.#state(data);
      case 'approval': return this.#approval(data);
      default: return false;
    }
  }

  // A command's reply comes twice, with the 202 and as an event, in either order. A list that
  // changes comes again with the same id.
  notice(text, { id, at = null, command = null, choices = [], about = null, question = null }) {
    this.tick += 1;
    const known = this.find(id);
    const entry = known ?? { ...entryOf({ id, role: 'notice', text }, this.tick), choices, about, question };
    const offered = entry.choices?.length ? entry.choices : choices;
    this.#put({ ...entry, text, at: entry.at ?? at, command: longer(entry.command, command), choices: offered, tick: this.tick });
  }

  // What agents asked in the turns that are shown, as it was read. `since`: the tick when it was
  // asked for.
  questions(views, since) {
    for (const view of views) {
      const known = this.find(view.id);
      const isOlder = known && known.tick > since && known.state !== 'pending' && view.state === 'pending';
      if (isOlder) continue;
      const entry = questionOf(view, known, this.tick);
      if (known && isLikeQuestion(known, entry)) continue;
      if (known) this.#put(entry);
      else this.#insert(entry);
    }
  }

  marks(effects) {
    const isKnown = (effect) => JSON.stringify(this.effects.get(effect.call)) === JSON.stringify(effect);
    const fresh = effects.filter((effect) => !isKnown(effect)).map((effect) => [effect.call, effect]);
    if (fresh.length) this.effects = new Map([...this.effects, ...fresh]);
  }

  // The newest page. `since`: the tick when it was asked for.
  load(page, since) {
    if (this.session !== null && page.session !== this.session) this.#forgetSession(since);
    this.session = page.session;
    const known = new Map(this.entries.map((entry) => [entry.id, entry]));
    const fresh = page.messages.map((raw) => storedEntry(raw, known.get(raw.id), since));
    const older = this.#older(page);
    this.isWhole = !page.next || (older.length > 0 && this.isWhole);
    this.entries = this.#weave([...older, ...fresh], since);
    this.isLoaded = true;
    this.#ask();
  }

  prepend(page) {
    const known = new Set(this.entries.map((entry) => entry.id));
    const fresh = page.messages.filter((raw) => !known.has(raw.id));
    this.entries = [...fresh.map((raw) => storedEntry(raw, undefined, 0)), ...this.entries];
    this.isWhole = !page.next;
  }

  // What is known from before the page still stands only if the page's first message is known:
  // then both lie on one chain.
  #older({ messages, next }) {
    if (!next) return [];
    const at = this.entries.findIndex((entry) => entry.id === messages[0].id);
    return at > 0 ? this.entries.slice(0, at).filter((entry) => !isLocal(entry)) : [];
  }

  // Queued messages are in no page until their turn starts.
  #queued() {
    const begun = new Set(this.entries.filter(({ role }) => role !== 'user').map(({ turn }) => turn));
    const open = this.entries.filter(({ role, turn }) => role === 'user' && !begun.has(turn) && !this.outcomes.has(turn));
    return new Set(this.queued ? open.slice(-this.queued) : []);
  }

  // Notices, questions and what arrived meanwhile keep their place: behind the nearest entry that
  // remains. But what a redo or a resume brings back was there before the notice that says so, and a
  // question goes with its turn.
  #weave(stored, since) {
    const places = new Map(stored.map((entry, at) => [entry.id, at + 1]));
    const queued = this.#queued();
    const turns = new Set(stored.map(({ turn }) => turn));
    const behind = Array.from({ length: stored.length + 1 }, () => []);
    let place = 0;
    for (const entry of this.entries) {
      if (places.has(entry.id)) place = places.get(entry.id);
      else if (entry.role === 'notice' && !entry.isStored) behind[Math.max(place, placeAt(stored, entry.at))].push(entry);
      else if (entry.role === 'approval' && turns.has(entry.turn)) behind[Math.max(placeOf(entry, stored), 0)].push(entry);
      else if (entry.tick > since || queued.has(entry)) behind[place].push(entry);
    }
    return [...behind[0], ...stored.flatMap((entry, at) => [entry, ...behind[at + 1]])];
  }

  #forgetSession(since) {
    this.#forgetNotices();
    this.entries = this.entries.filter((entry) => (entry.role === 'notice' && isLocal(entry)) || entry.tick > since);
    this.outcomes.clear();
    this.isWhole = false;
  }

  // Only the notice that told of the change is about the session that is shown now.
  #forgetNotices() {
    const notices = this.entries.filter((entry) => entry.role === 'notice' && isLocal(entry));
    const last = notices.toSorted((a, b) => (a.at ?? Infinity) - (b.at ?? Infinity)).at(-1);
    this.entries = this.entries.filter((entry) => entry === last || !isLocal(entry));
  }

  #put(entry) {
    const at = this.entries.findLastIndex((known) => known.id === entry.id);
    if (at >= 0) {
      this.entries = this.entries.with(at, entry);
      return;
    }
    // A queued message may have been announced before the running turn's last words.
    const mate = entry.turn === null ? -1 : this.entries.findLastIndex((known) => known.turn === entry.turn);
    const place = mate >= 0 ? mate + 1 : this.entries.length;
    this.entries = this.entries.toSpliced(place, 0, entry);
  }

  #message(raw) {
    if (raw.role === 'notice') {
      const { id, at = null, choices = [], turn: about = null, question = null, name = '' } = raw;
      this.notice(raw.text ?? '', { id, at, choices, about, question, command: name ? `/${name}` : null });
      return false;
    }
    const known = this.find(raw.id);
    const entry = entryOf(raw, this.tick);
    const isStale = known !== undefined && known.turn !== entry.turn;
    if (!known) this.#put(entry);
    // A message that was rewritten is told without its files.
    else if (entry.role === 'user') this.#put({ ...entry, attachments: known.attachments });
    else this.#put(newer(entry, { ...known, isFull: false }, this.tick));
    return isStale;
  }

  #delta({ turn, message, offset, text }) {
    const known =
      this.find(message) ??
      { ...entryOf({ id: message, role: 'assistant', text: '', turn }, this.tick), isFull: false };
    const isUnasked = !this.find(message) && !this.userOf(turn);
    const entry = withDelta(known, { offset, text }, this.tick);
    if (entry !== known || !this.find(message)) this.#put(entry);
    return entry.held.length > 0 || isUnasked;
  }

  // Of a call whose effect is unknown, only the list of effects says whether that can be settled.
  #tool({ turn, call, name, state, ended, result, text: progress = '', attachments, whole, size }) {
    const known = this.find(call) ?? entryOf({ id: call, role: 'tool', turn, name }, this.tick);
    const isRunning = state === 'progress' || state === 'started';
    this.#put({
      ...known,
      name: name || known.name,
      state: isRunning ? 'started' : ended || state,
      progress: isRunning ? progress : '',
      text: result === undefined ? known.text : textOf(result),
      attachments: attachments ?? known.attachments,
      whole: whole || known.whole,
      size: size ?? known.size,
      tick: this.tick,
    });
    return state === 'unknown';
  }

  #outcome({ turn, outcome, reason = null, detail = '', timings = null, agent_state: agentState = null, ending = '', renews_at: renewsAt = 0, usage = null }) {
    this.outcomes.set(turn, { outcome, reason, detail, timings, agentState, ending, renewsAt, usage });
    // Nothing is told of a question whose turn has ended before anybody answered it.
    for (const entry of this.entries) {
      const isLeft = entry.role === 'approval' && entry.turn === turn && entry.state === 'pending';
      if (isLeft) this.#put({ ...entry, state: 'withdrawn', tick: this.tick });
    }
    return outcome !== 'done';
  }

  #state({ state, session, head = null, turn = null, queued = 0, resume_reason = null, choices = [], title = '' }) {
    const isMoved = this.head !== undefined && head !== this.head;
    const isOtherSession = this.#watched !== null && session !== this.#watched;
    // A turn that waited when the transcript was read is in it only now.
    const isUnknown = Boolean(turn) && !this.userOf(turn);
    if (isOtherSession) this.#forgetNotices();
    this.#watched = session;
    Object.assign(this, { state, head, turn, queued, choices, title, resumeReason: resume_reason });
    this.#ask();
    return isMoved || isOtherSession || isUnknown || this.#isAstray();
  }

  // At rest the last entry belongs to the head; if not, it was taken back while nobody watched.
  #isAstray() {
    if (this.turn || !this.isLoaded) return false;
    const last = this.entries.findLast((entry) => !isLocal(entry) && entry.role !== 'notice' && entry.turn !== null);
    return (last?.turn ?? null) !== this.head;
  }

  // A question that was asked before this page was there to hear it stands until it is answered.
  #ask() {
    const { turn, choices } = this;
    const isOpen = choices.length > 0;
    const isTold = this.entries.some(({ id, about, choices: offered }) => id !== this.#asked && about === turn && offered?.length);
    this.entries = this.entries.filter(({ id, about }) => id !== this.#asked || (isOpen && !isTold && about === turn));
    if (!isOpen || this.entries.some((entry) => entry.about === turn && entry.choices.length)) return;
    this.#asked = `ask:${turn}`;
    this.notice(QUESTION, { id: this.#asked, choices, about: turn });
  }

  // The name of whoever has answered is not in the event, only in the question itself.
  #approval({ by, ...told }) {
    const known = this.find(told.id);
    const entry = questionOf(told, known, this.tick);
    if (known || !this.#insert(entry)) this.#put(entry);
    return false;
  }

  #insert(entry) {
    const place = placeOf(entry, this.entries);
    if (place < 0) return false;
    this.entries = this.entries.toSpliced(inOrder(entry, place, this.entries), 0, entry);
    return true;
  }
}
