// Who uses this page. A token comes in the fragment of an address, or is typed. Anybody can write
// an address, so a token from one is tried before it is kept, and never takes the place of another
// without a question.

import * as api from './api.js';
import { ask } from './dialogs/question.js';
import { t } from './language.js';
import { drawNow, redraw, state } from './state.js';
import { Marked, html, useLayoutEffect, useRef } from './ui.js';

// The token must not stay in the address bar or in the history, where it would be copied, synced
// and screenshotted.
export function takeGiven() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.has('token')) return null;
  const token = given.get('token');
  given.delete('token');
  const rest = given.toString();
  history.replaceState(null, '', location.pathname + location.search + (rest ? `#${rest}` : ''));
  return token;
}

// What the gateway says of a token: who it is, null if it is refused.
async function whoIs(token) {
  // Anything else cannot stand in a header, and would look like a lost connection.
  if (!/^[\x21-\x7e]+$/.test(token)) return null;
  try {
    return await api.whoIs(token);
  } catch (failure) {
    if (failure.status === 401) return null;
    throw failure;
  }
}

let enter = () => {};

// `begin` is called when the page is to be shown to whoever has signed in.
export function whenSignedIn(begin) {
  enter = begin;
}

// The browser keeps the first address of a page among its timings, and the page may hold somebody
// else's conversations. So a new person begins with a new page, unless nothing would be left there.
function beginAs(token) {
  if (api.keepToken(token)) location.reload();
  else enter();
}

export async function consider(given) {
  const kept = api.token();
  try {
    if (!kept) await first(given);
    else if (given === kept) beginAs(given);
    else await second(given, kept);
  } catch (failure) {
    tell(t('the_token_in_this_address', { problem: failure.message }));
  }
}

async function first(given) {
  show();
  await tried(given);
}

async function tried(token) {
  try {
    if (await whoIs(token)) beginAs(token);
    else show(t('the_gateway_did_not_accept_this'));
  } catch (failure) {
    show(failure.message, token);
  }
}

async function second(given, kept) {
  if (state.place !== 'chat') await enter();
  const [found, now] = await Promise.all([whoIs(given), whoIs(kept)]);
  if (!found) tell(t('the_token_in_this_address_is'));
  else if (!now || (await agreed(found, now))) beginAs(given);
}

const agreed = (found, now) =>
  ask({
    id: 'switch',
    title: t('sign_in_as_somebody_else'),
    text: t('you_are_signed_in_as', { now: now.principal, found: found.principal }),
    no: t('stay_signed_in'),
    yes: t('switch'),
  });

const tell = (text) => ask({ id: 'told', text, yes: t('ok') });

export function show(problem = '', token = '') {
  state.place = 'signin';
  state.signin = { problem, token };
  drawNow();
}

export function SignIn() {
  const field = useRef(null);
  const { problem, token } = state.signin;
  useLayoutEffect(() => {
    document.title = t('sign_in_perdure');
    field.current.focus();
  }, []);
  const submit = (event) => {
    event.preventDefault();
    tried(field.current.value.trim());
  };
  const typed = (event) => {
    state.signin.token = event.currentTarget.value;
    redraw();
  };
  return html`<main id="signin" class="signin">
    <form class="panel" autocomplete="off" onSubmit=${submit}>
      <img class="mark" src="static/icon.svg" alt="" width="40" height="40" />
      <h1>${t('sign_in_to_perdure')}</h1>
      <p><${Marked} text=${t('open_the_url_that_perdure')} /></p>
      <label for="signin-token">${t('token')}</label>
      <input id="signin-token" type="password" required spellcheck="false" autocapitalize="off" aria-describedby="signin-error" ref=${field} value=${token} onInput=${typed} />
      <p id="signin-error" class="error" role="alert" hidden=${!problem}>${problem}</p>
      <button class="primary" type="submit">${t('sign_in')}</button>
    </form>
  </main>`;
}
