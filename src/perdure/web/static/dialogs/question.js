// A question of the page itself, answered by one of at most two buttons.

import { drawNow, redraw, state } from '../state.js';
import { Button, html, useState } from '../ui.js';
import { Dialog } from './dialog.js';

// Returns whether the answer was yes. act() is what is done then: while it fails, the question stays
// and says why. Without `no` there is nothing to choose.
export function ask({ id, title = '', text, no = '', yes, act = async () => {} }) {
  return new Promise((resolve) => {
    state.question = { id, title, text, no, yes, act, resolve, isAgreed: false };
    drawNow();
  });
}

export function PageQuestion({ question }) {
  const [problem, setProblem] = useState('');
  const [isBusy, setBusy] = useState(false);
  const { id, title, text, no, yes, act, resolve } = question;
  const close = () => document.getElementById(id).close();
  const agree = async () => {
    setBusy(true);
    try {
      await act();
      question.isAgreed = true;
      close();
    } catch (failure) {
      if (failure.status === undefined) throw failure;
      setProblem(failure.message);
      setBusy(false);
    }
  };
  const closed = () => {
    if (state.question === question) state.question = null;
    resolve(question.isAgreed);
    redraw();
  };
  return html`<${Dialog} id=${id} class="panel" shown=${question} closed=${closed} aria-labelledby=${title ? `${id}-title` : null} aria-describedby=${`${id}-text`}>
    ${title ? html`<h2 id=${`${id}-title`}>${title}</h2>` : null}
    <p id=${`${id}-text`}>${text}</p>
    <p class="error" role="alert" hidden=${!problem}>${problem}</p>
    ${no ? html`<${Button} class="quiet" label=${no} autofocus action=${close} />` : null}
    <${Button} class="primary" label=${yes} disabled=${isBusy} action=${agree} />
  <//>`;
}
