// Reads what was asked in the turns of a page, and which of their calls may or may not have happened:
// the transcript tells neither. What cannot change any more is read once.

import * as api from './api.js';

const TURNS_MAX = 50;

class Known {
  #final = new Map();
  #read;

  constructor(read) {
    this.#read = read;
  }

  // isFinal(turn, found) tells whether nothing of a turn can change any more.
  async of(turns, isFinal) {
    const missing = turns.filter((turn) => !this.#final.has(turn));
    const found = [];
    for (let at = 0; at < missing.length; at += TURNS_MAX) found.push(...(await this.#read(missing.slice(at, at + TURNS_MAX))));
    for (const turn of missing) {
      const ours = found.filter((each) => each.turn === turn);
      if (isFinal(turn, ours)) this.#final.set(turn, ours);
    }
    return [...turns.flatMap((turn) => this.#final.get(turn) ?? []), ...found.filter(({ turn }) => !this.#final.has(turn))];
  }
}

export class Asked {
  #questions = new Known(async (turns) => (await api.approvals(turns)).approvals);
  #effects = new Known(async (turns) => (await api.effects(turns)).effects);

  async in(messages) {
    const turnsWith = (is) => [...new Set(messages.filter(is).map(({ turn }) => turn))];
    const over = new Set(turnsWith(({ outcome }) => outcome && outcome !== 'interrupted'));
    const called = turnsWith(({ tool_calls: calls, role }) => role === 'tool' || calls?.length);
    const unsure = turnsWith(({ state, role }) => role === 'tool' && state === 'unknown');
    const [questions, effects] = await Promise.all([
      this.#questions.of(called, (turn) => over.has(turn)),
      this.#effects.of(unsure, (_, found) => found.every(({ state }) => state !== 'unknown')),
    ]);
    return { questions, effects };
  }
}
