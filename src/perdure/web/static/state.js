// What the page shows, in one place. Whoever changes it has it drawn again.

export const state = {
  // 'signin' or 'chat'; empty until it is known whether the token is good.
  place: '',
  // What is wrong with the token that was tried, and what stands in its field.
  signin: { problem: '', token: '' },
  // The conversations that were shown, by name, and the one that is shown.
  opened: new Map(),
  current: null,
  // Since when the connection is lost.
  lostSince: null,
  // Who answers here, how, and how much the model reads, as the gateway has said.
  answering: null,
  agents: [],
  // Who is signed in; empty until that is known.
  principal: '',
  jobs: 0,
  isDrawerOpen: false,
  // What the dialogs show: one that shows something, and one that asks something.
  panel: null,
  question: null,
  // The picture that is shown over the page.
  picture: null,
};

let isDue = false;
let draw = () => {};

export function drawnBy(drawing) {
  draw = drawing;
}

export const drawNow = () => draw();

// What changes in one frame is drawn once.
export function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
  });
}

export const isBusyElsewhere = () => state.place !== 'chat' || document.querySelector('dialog[open]') !== null;

export const focusText = () => document.getElementById('text')?.focus();

export function enlarge(source, words) {
  state.picture = { source, words };
  redraw();
}
