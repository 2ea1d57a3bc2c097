// One conversation kept in step with the gateway: its event stream, and the transcript read again
// whenever the stream says that what is known no longer stands.

import * as api from './api.js';
import { Asked } from './asked.js';
import { isLocal } from './entries.js';
import { EventStream } from './sse.js';
import { Transcript } from './transcript.js';

const PAGE = 50;
const RELOAD_WAIT_MS = 40;
const BUSY_WAIT_MS = 2000;
const LOADING_TRIES = 250;

export class Conversation {
  transcript = new Transcript();
  connection = 'connecting';
  problem = null;
  isLoadingOlder = false;
  isNew = false;
  #stream;
  #changed;
  #appeared;
  #stored;
  #reload = null;
  #isStale = false;
  #isCatchingUp = true;
  #isUnread = false;
  #explained = new Set();
  #asked = new Asked();

  // changed(kind) is called after every change, appeared(messages) with those not seen before,
  // stored(messages) with each page that was read.
  constructor(name, { changed, appeared, stored }) {
    this.name = name;
    this.#changed = changed;
    this.#appeared = appeared;
    this.#stored = stored;
    this.#stream = new EventStream({
      open: (lastId, signal) => api.events(name, lastId, signal),
      received: (kind, data) => this.#received(kind, data),
      changed: (state) => this.#connected(state),
    });
  }

  // A chat that was not written to yet is unknown to the gateway: there is nothing to read.
  begin() {
    this.isNew = true;
    this.transcript.begin();
  }

  open() {
    if (!this.isNew) this.#stream.run();
  }

  close() {
    this.#stream.close();
  }

  nudge() {
    this.#stream.nudge();
  }

  read() {
    this.#isStale = true;
    this.#reload ??= this.#reading();
  }

  // Until the newest page was read.
  async loaded() {
    while (!this.transcript.isLoaded && this.#reload) await this.#reload;
    for (let tries = 0; !this.transcript.isLoaded && tries < LOADING_TRIES; tries += 1) {
      await new Promise((resolve) => setTimeout(resolve, RELOAD_WAIT_MS));
    }
  }

  // Reads what stands before what is known. False: nothing came of it.
  async older(limit = PAGE) {
    const { transcript } = this;
    // Only stored messages are places in the transcript; one still being written is not.
    const first = transcript.entries.find((entry) => entry.isFull && !isLocal(entry));
    if (this.isLoadingOlder || transcript.isWhole || !transcript.isLoaded || !first) return false;
    this.isLoadingOlder = true;
    this.#changed('older');
    try {
      const since = transcript.tick;
      const page = await api.transcript(this.name, { limit, before: first.id, notices: true });
      const asked = await this.#asked.in(page.messages);
      transcript.prepend(page);
      this.#tell(asked, since);
      return page.messages.length > 0;
    } catch (failure) {
      this.#fail(failure);
      return false;
    } finally {
      this.isLoadingOlder = false;
      this.#changed('older');
    }
  }

  #connected(state) {
    this.connection = state;
    this.#isCatchingUp = true;
    if (state === 'absent') this.transcript.begin();
    // Where nothing was missed no state comes that would have it read.
    if (state === 'open' && this.#isUnread) this.read();
    this.#changed(state === 'refused' ? 'refused' : 'connection');
  }

  #received(kind, data) {
    const isNew = kind === 'message' && !this.transcript.find(data.id);
    const isStale = this.transcript.apply(kind, data);
    // A connection first tells what was missed, then the present state, if that is news. Only then
    // is a page sure to be newer than all of it; what happens after the page arrives as an event.
    const isCaughtUp = kind === 'state' && this.#isCatchingUp;
    if (isCaughtUp) this.#isCatchingUp = false;
    if (isNew) this.#appeared([data]);
    if (isStale || isCaughtUp) this.read();
    if (kind === 'approval') this.look(data.id).catch(() => {});
    this.#changed(kind);
  }

  // Who has answered, and what a lasting permission covers, only the question itself says.
  async look(id) {
    const since = this.transcript.tick;
    this.learn(await api.approval(id), since);
  }

  learn(question, since = this.transcript.tick) {
    this.transcript.questions([question], since);
    this.#changed('approval');
  }

  async mark(call, happened) {
    this.transcript.marks([await api.mark(call, happened)]);
    this.#changed('effect');
  }

  #tell({ questions, effects }, since) {
    this.transcript.questions(questions, since);
    this.transcript.marks(effects);
  }

  // One read at a time; changes that come close together share one.
  async #reading() {
    while (this.#isStale) {
      await new Promise((resolve) => setTimeout(resolve, this.transcript.isLoaded ? RELOAD_WAIT_MS : 0));
      this.#isStale = false;
      const since = this.transcript.tick;
      try {
        const page = await api.transcript(this.name, { limit: PAGE, notices: true });
        const asked = await this.#asked.in(page.messages);
        const fresh = page.messages.filter(({ id }) => !this.transcript.find(id));
        this.transcript.load(page, since);
        this.#tell(asked, since);
        this.problem = null;
        this.#isUnread = false;
        this.#appeared(fresh);
        this.#stored(page.messages);
        this.#explainFailure();
      } catch (failure) {
        this.#isUnread = true;
        this.#fail(failure);
        // It is there but cannot answer now; when it is away, the stream's return reads again.
        if (failure.status && failure.retryable) setTimeout(() => this.read(), BUSY_WAIT_MS);
      }
      this.#changed('read');
    }
    this.#reload = null;
  }

  #fail(failure) {
    if (failure.status === undefined) throw failure;
    if (failure.status === 401) this.#changed('refused');
    else if (failure.status === 404) this.transcript.begin();
    // Unreachable: the stream reconnects, and the transcript is read again then.
    else if (failure.status) this.problem = failure.message;
  }

  // Transcript entries carry the outcome; why it failed is known by the turn.
  async #explainFailure() {
    const { transcript } = this;
    const last = transcript.entries.findLast((entry) => entry.role === 'assistant');
    const isAsked = !last || this.#explained.has(last.turn);
    if (isAsked || last.reason || !['failed', 'refused'].includes(last.outcome)) return;
    if (transcript.outcomes.get(last.turn)?.reason) return;
    this.#explained.add(last.turn);
    try {
      const { outcome, reason, detail } = await api.turn(last.turn);
      if (outcome) transcript.outcomes.set(last.turn, { outcome, reason, detail });
      this.#changed('outcome');
    } catch {
      // The badge says "failed" without saying why.
    }
  }
}
