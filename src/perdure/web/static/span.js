// Which part of a long conversation is drawn: its end while it is followed, and otherwise the part
// around what is read. So the page stays as light after 5,000 messages as after fifty. Pure.

const STEP = 60;
const SHOWN_MAX = 180;

// A turn is drawn as a whole or not at all, since its rows tell of each other.
function turnBegin(entries, at) {
  let begin = at;
  while (begin > 0 && entries[begin].turn !== null && entries[begin - 1].turn === entries[begin].turn) begin -= 1;
  return begin;
}

function turnEnd(entries, at) {
  let end = at;
  while (end < entries.length && entries[end].turn !== null && entries[end - 1]?.turn === entries[end].turn) end += 1;
  return end;
}

export class Span {
  #from = null;
  #to = null;

  // Ends with the newest entry, and follows it.
  follow() {
    this.#from = null;
    this.#to = null;
  }

  // The entries that are drawn; `begin` and `end` are their places.
  of(entries) {
    const known = this.#to === null ? -1 : entries.findIndex(({ id }) => id === this.#to);
    const end = known < 0 ? entries.length : turnEnd(entries, known + 1);
    const first = this.#from === null ? -1 : entries.findIndex(({ id }) => id === this.#from);
    const begin = first >= 0 && first < end ? first : Math.max(0, end - SHOWN_MAX);
    // What comes while something older is read is not drawn without end.
    const last = first >= 0 && end - begin > 2 * SHOWN_MAX ? turnEnd(entries, begin + SHOWN_MAX) : end;
    return { begin: last > begin ? turnBegin(entries, begin) : begin, end: last };
  }

  // Tells whether as much is drawn as is drawn at most.
  isFull(entries) {
    const { begin, end } = this.of(entries);
    return end - begin >= SHOWN_MAX / 3;
  }

  // Shows earlier entries. False: there are none here.
  earlier(entries) {
    const { begin, end } = this.of(entries);
    if (begin === 0) {
      this.#from = entries[0]?.id ?? null;
      return false;
    }
    const from = turnBegin(entries, Math.max(0, begin - STEP));
    this.#set(entries, from, Math.min(end, from + SHOWN_MAX));
    return true;
  }

  // Shows later entries. False: the newest one is shown.
  later(entries) {
    const { begin, end } = this.of(entries);
    if (end === entries.length) return false;
    const to = turnEnd(entries, Math.min(entries.length, end + STEP));
    this.#set(entries, Math.max(begin, to - SHOWN_MAX), to);
    return true;
  }

  // Shows the part around an entry. False: it is not known.
  around(entries, id) {
    const at = entries.findIndex((entry) => entry.id === id);
    if (at < 0) return false;
    const from = Math.max(0, at - STEP);
    this.#set(entries, from, Math.min(entries.length, from + SHOWN_MAX));
    return true;
  }

  // Stays where it is while the newest entry moves on.
  hold(entries) {
    const { begin, end } = this.of(entries);
    if (entries.length) this.#set(entries, begin, end);
  }

  #set(entries, from, to) {
    this.#from = entries[from]?.id ?? null;
    this.#to = to >= entries.length ? null : (entries[to - 1]?.id ?? null);
  }
}

// A transcript of which only a part is drawn.
export function partOf(transcript, { begin, end }) {
  const { outcomes, session, state, turn, queued, choices, effects, title } = transcript;
  const entries = transcript.entries.slice(begin, end);
  const ids = new Map(entries.map((entry) => [entry.id, entry]));
  return { entries, outcomes, session, state, turn, queued, choices, effects, title, isEnd: end === transcript.entries.length, find: (id) => ids.get(id) };
}
