// Who uses this page. A token comes in the fragment of an address, or is typed. Anybody can write
// an address, so a token from one is tried before it is kept, and never takes the place of another
// without a question.

import * as api from './api.js';

const element = (id) => document.getElementById(id);
const REFUSED = 'The gateway did not accept this token.';

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

// The browser keeps the first address of a page among its timings, and the page may hold somebody
// else's conversations. So a new person begins with a new page, unless nothing would be left there.
function beginAs(token, enter) {
  if (api.keepToken(token)) location.reload();
  else enter();
}

export async function consider(given, enter) {
  const kept = api.token();
  try {
    if (!kept) await first(given, enter);
    else if (given === kept) beginAs(given, enter);
    else await second(given, kept, enter);
  } catch (failure) {
    tell(`The token in this address could not be tried, and nothing has changed. ${failure.message}`);
  }
}

async function first(given, enter) {
  show();
  try {
    if (await whoIs(given)) beginAs(given, enter);
    else complain(REFUSED);
  } catch (failure) {
    complain(failure.message);
    element('signin-token').value = given;
  }
}

async function second(given, kept, enter) {
  if (element('app').hidden) await enter();
  const [found, now] = await Promise.all([whoIs(given), whoIs(kept)]);
  if (!found) tell('The token in this address is not known here. Nothing has changed.');
  else if (!now || (await agreed(found, now))) beginAs(given, enter);
}

async function agreed(found, now) {
  element('switch-text').textContent =
    `You are signed in as ${now.principal}. This address would sign you in as ${found.principal} instead. ` +
    'Do so only if you trust whoever gave it to you.';
  return (await asked(element('switch'))) === 'yes';
}

function tell(words) {
  element('told-text').textContent = words;
  asked(element('told'));
}

// What the person chose; nothing if the question was only closed.
function asked(dialog) {
  dialog.returnValue = '';
  for (const button of dialog.querySelectorAll('button')) button.onclick = () => dialog.close(button.value);
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue);
  });
}

export const isShown = () => !element('signin').hidden;

export function show(problem = '') {
  if (!isShown()) {
    element('app').hidden = true;
    element('signin').hidden = false;
    document.title = 'Sign in · Perdure';
    element('signin-token').value = '';
    element('signin-token').focus();
  }
  complain(problem);
}

export function complain(problem) {
  element('signin-error').textContent = problem;
  element('signin-error').hidden = !problem;
}

export function listen(enter) {
  element('signin-form').addEventListener('submit', async (event) => {
    event.preventDefault();
    const token = element('signin-token').value.trim();
    try {
      if (await whoIs(token)) beginAs(token, enter);
      else complain(REFUSED);
    } catch (failure) {
      complain(failure.message);
    }
  });
}
