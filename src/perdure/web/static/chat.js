// Where the page begins: it signs in, draws, and hears what happens around it.

import * as api from './api.js';
import { openSearch } from './acts.js';
import { noteSeen, showAsked, whenRefused } from './opened.js';
import { Page } from './page.js';
import { scroller } from './reading.js';
import { draft, outbox, prepare, stop } from './sending.js';
import { countJobs } from './sidebar/active.js';
import { list } from './sidebar/list.js';
import * as signin from './signin.js';
import * as storage from './storage.js';
import { drawNow, drawnBy, focusText, isBusyElsewhere, redraw, state } from './state.js';
import { isActive } from './transcript.js';
import { html, render } from './ui.js';
import { t } from './language.js';

const root = document.getElementById('page');

function leave() {
  if (state.place === 'signin') return;
  state.current?.close();
  list.close();
  signin.show(api.token() ? t('the_gateway_did_not_accept') : '');
}

async function enter() {
  if (!api.token()) {
    leave();
    return;
  }
  try {
    await list.load();
  } catch (failure) {
    if (failure.status === 401) {
      api.forgetToken();
      signin.show(t('the_gateway_did_not_accept_this'));
      return;
    }
    if (state.place === 'signin') {
      signin.show(failure.message, state.signin.token);
      return;
    }
  }
  begin();
}

// Nothing is shown before there is a conversation to write to: what is typed must have a place.
function begin() {
  state.place = 'chat';
  readStatus().catch(() => {});
  countJobs();
  renewNotifications();
  state.current?.open();
  list.run({ refused: leave, told: noteSeen });
  showAsked();
  outbox.wake();
  drawNow();
  focusText();
}

// What a person has turned on stays on, although the browser or the gateway has forgotten it.
function renewNotifications() {
  if (storage.read('perdure.notified')) import('./notifying.js').then(({ renew }) => renew()).catch(() => {});
}

async function readStatus() {
  const { agents, principal } = await api.status();
  state.agents = Array.isArray(agents) ? agents : [];
  state.principal = principal ?? '';
  redraw();
}

function nudge() {
  if (document.hidden || state.place !== 'chat') return;
  state.current?.nudge();
  list.nudge();
  outbox.wake();
  noteSeen();
  countJobs();
}

function keyed(event) {
  if (isBusyElsewhere()) return;
  if (event.key === 'k' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    openSearch();
    return;
  }
  if (event.defaultPrevented || event.isComposing) return;
  if (event.key === 'Escape' && isActive(state.current?.transcript ?? {}) && !draft.isEditing) stop();
}

function moved() {
  const given = signin.takeGiven();
  if (given !== null && given !== api.token()) signin.consider(given);
  showAsked();
}

drawnBy(() => scroller.around(() => render(html`<${Page} />`, root)));
whenRefused(leave);
signin.whenSignedIn(enter);
addEventListener('keydown', keyed);
addEventListener('hashchange', moved);
addEventListener('online', nudge);
addEventListener('offline', redraw);
addEventListener('input', prepare, { once: true });
document.addEventListener('visibilitychange', nudge);
// A notification was clicked.
navigator.serviceWorker?.addEventListener('message', ({ data }) => {
  if (typeof data?.open === 'string') location.hash = `c=${encodeURIComponent(data.open)}`;
});

const given = signin.takeGiven();
if (given === null) enter();
else signin.consider(given);
