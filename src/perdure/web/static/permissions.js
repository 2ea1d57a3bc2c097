// Shows what the agent of a conversation may do, and what was allowed for longer, which can be taken
// back here.

import * as api from './api.js';
import { button, make } from './elements.js';
import { exact } from './exact.js';
import { shortTime } from './words.js';

const PAGES_MAX = 10;
const STATES = { allow: 'allowed', ask: 'asks you', deny: 'not allowed', off: 'not available', 'allow or ask': 'may ask you' };

async function allGrants() {
  const found = [];
  let cursor = null;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const { grants, next } = await api.grants(cursor);
    found.push(...grants);
    if (!next) break;
    cursor = next;
  }
  return found;
}

function spanOf({ scope, session, until }, here) {
  if (scope === 'session') return session === here ? 'in this session' : 'in another session';
  return scope === 'time' ? `until ${shortTime(until)}` : 'forever';
}

function toolItem({ name, state, why }) {
  return make(
    'li', 'permission',
    make('span', 'permission-name', exact(name)),
    make('span', `permission-state ${state.split(' ').at(-1)}`, STATES[state] ?? exact(state)),
    make('span', 'permission-why', exact(why)),
  );
}

export class Permissions {
  #dialog = document.getElementById('permissions');
  #body = document.getElementById('permissions-body');
  #status = document.getElementById('permissions-status');
  #where;

  // where() returns the conversation's name, empty if the gateway does not know it yet, and its session.
  constructor({ where }) {
    this.#where = where;
    document.getElementById('close-permissions').addEventListener('click', () => this.#dialog.close());
    // A click beside the dialog is one on its backdrop.
    this.#dialog.addEventListener('click', (event) => {
      if (event.target === this.#dialog) this.#dialog.close();
    });
  }

  async open() {
    this.#body.replaceChildren();
    this.#say('Loading…');
    this.#dialog.showModal();
    try {
      await this.#draw();
      this.#say('');
    } catch (failure) {
      this.#say(failure.message);
    }
  }

  #say(words) {
    this.#status.textContent = words;
  }

  async #draw() {
    const { name, session } = this.#where();
    const [{ tools }, grants] = await Promise.all([api.tools(name), allGrants()]);
    const usable = tools.filter(({ state }) => state !== 'off');
    const missing = tools.filter(({ state }) => state === 'off');
    const parts = [
      usable.length ? make('ul', 'permission-list', ...usable.map(toolItem)) : make('p', '', 'This agent has no tools.'),
    ];
    if (missing.length) {
      const list = make('ul', 'permission-list', ...missing.map(toolItem));
      parts.push(make('details', 'asked', make('summary', '', `Not available (${missing.length})`), list));
    }
    parts.push(make('h3', '', 'Allowed for longer'), this.#grantList(grants, session));
    this.#body.replaceChildren(...parts);
  }

  #grantList(grants, session) {
    if (!grants.length) return make('p', '', 'Nothing. Each call that needs a permission is asked about.');
    const isSeveral = new Set(grants.map(({ person }) => person)).size > 1;
    return make('ul', 'permission-list', ...grants.map((grant) => this.#grantItem(grant, session, isSeveral)));
  }

  #grantItem(grant, session, isSeveral) {
    const words = `${exact(grant.covers)}, ${spanOf(grant, session)}`;
    const who = isSeveral ? `${exact(grant.person)} to ${exact(grant.agent)}` : `to ${exact(grant.agent)}`;
    const item = make('li', 'permission grant', make('span', 'permission-name', words), make('span', 'permission-why', who));
    const back = button('Take back', 'quiet small', () => this.#takeBack(grant, item, back));
    back.setAttribute('aria-label', `Take back: ${words}`);
    item.append(back);
    return item;
  }

  async #takeBack({ id }, item, back) {
    back.disabled = true;
    try {
      await api.revoke(id);
    } catch (failure) {
      if (failure.status !== 404) {
        back.disabled = false;
        this.#say(failure.message);
        return;
      }
    }
    const next = (item.nextElementSibling ?? item.previousElementSibling)?.querySelector('button');
    if (next) item.remove();
    else item.parentElement.replaceWith(this.#grantList([], ''));
    (next ?? document.getElementById('close-permissions')).focus();
    this.#say('Taken back. The next such call is asked about again.');
  }
}
