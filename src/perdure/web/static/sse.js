// EventSource cannot send an Authorization header, so the stream is read with fetch.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
const SILENCE_MS = 60_000;
const STALE_MS = 20_000;

class Parser {
  #buffer = '';
  #event = '';
  #data = [];
  #id = null;

  push(chunk) {
    const found = [];
    this.#buffer += chunk;
    // A chunk may end between CR and LF: such a CR waits for the next chunk.
    const lines = this.#buffer.split(/\r\n|\n|\r(?!$)/);
    this.#buffer = lines.pop();
    for (const line of lines) this.#line(line, found);
    return found;
  }

  #line(line, found) {
    if (line === '') {
      if (this.#data.length) {
        found.push({ id: this.#id, event: this.#event || 'message', data: this.#data.join('\n') });
      }
      this.#event = '';
      this.#data = [];
      return;
    }
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === 'event') this.#event = value;
    else if (field === 'data') this.#data.push(value);
    else if (field === 'id' && !value.includes('\0')) this.#id = value;
  }
}

// One conversation's events, reconnecting for as long as it is wanted.
// `changed` gets connecting | open | lost | absent | refused.
export class EventStream {
  lastId = null;
  #open;
  #received;
  #changed;
  #abort = null;
  #wake = null;
  #heardAt = 0;
  #live = null;

  constructor({ open, received, changed, lastId = null }) {
    this.#open = open;
    this.#received = received;
    this.#changed = changed;
    this.lastId = lastId;
  }

  async run() {
    if (this.#abort) return;
    const life = new AbortController();
    this.#abort = life;
    let wait_ms = FIRST_WAIT_MS;
    this.#changed('connecting');
    while (!life.signal.aborted) {
      const end = await this.#connection(life.signal);
      if (life.signal.aborted) break;
      if (end === 'absent' || end === 'refused') {
        this.#abort = null;
        this.#changed(end);
        return;
      }
      if (end === 'ended') wait_ms = FIRST_WAIT_MS;
      this.#changed('lost');
      const woken = await this.#pause(wait_ms, life.signal);
      wait_ms = woken ? FIRST_WAIT_MS : Math.min(wait_ms * 2, LONGEST_WAIT_MS);
    }
  }

  close() {
    this.#abort?.abort();
    this.#abort = null;
  }

  // Called when the network or the tab comes back: a sleeping machine's connection can be dead
  // without anyone having said so, and resuming by id costs nothing.
  nudge() {
    this.#wake?.();
    if (this.#live && performance.now() - this.#heardAt > STALE_MS) this.#live.abort();
  }

  async #connection(signal) {
    const connection = new AbortController();
    const abort = () => connection.abort();
    signal.addEventListener('abort', abort);
    const watchdog = setInterval(() => {
      if (this.#heardAt && performance.now() - this.#heardAt > SILENCE_MS) abort();
    }, 5000);
    this.#heardAt = performance.now();
    try {
      const response = await this.#open(this.lastId, connection.signal);
      this.#live = connection;
      this.#changed('open');
      await this.#read(response.body.getReader(), signal);
      return 'ended';
    } catch (error) {
      if (error.status === 404) return 'absent';
      if (error.status === 401 || error.status === 403) return 'refused';
      return this.#live ? 'ended' : 'unreachable';
    } finally {
      this.#live = null;
      clearInterval(watchdog);
      signal.removeEventListener('abort', abort);
    }
  }

  async #read(reader, signal) {
    const decoder = new TextDecoder();
    const parser = new Parser();
    for (;;) {
      const { done, value } = await reader.read();
      // Closed by us while a chunk was on its way: those events belong to nobody.
      if (done || signal.aborted) return;
      this.#heardAt = performance.now();
      for (const event of parser.push(decoder.decode(value, { stream: true }))) {
        this.#received(event.event, JSON.parse(event.data));
        // Only after it was applied: an event that was not is asked for again.
        if (event.id !== null) this.lastId = event.id;
      }
    }
  }

  #pause(wait_ms, signal) {
    return new Promise((resolve) => {
      const done = (woken) => {
        clearTimeout(timer);
        this.#wake = null;
        resolve(woken);
      };
      const timer = setTimeout(() => done(false), wait_ms);
      this.#wake = () => done(true);
      signal.addEventListener('abort', () => done(false), { once: true });
    });
  }
}
