// The head of a conversation: its title, who answers, and whether the connection stands.

import { openAnswering, openPermissions, openSessions } from './acts.js';
import { t } from './language.js';
import { isLost } from './opened.js';
import { isBlank } from './sending.js';
import { list } from './sidebar/list.js';
import { redraw, state } from './state.js';
import { Icon, html, useLayoutEffect } from './ui.js';
import { percent, shareOf } from './words.js';

function Answering({ known }) {
  if (!known) return null;
  const { agent, agents } = known;
  const model = agents.find(({ name }) => name === agent)?.model;
  const share = shareOf(known);
  const words = [agent, model, share >= 0.01 && t('share_full', { share: percent(share) })].filter(Boolean).join(' · ');
  if (!words) return null;
  return html`<button id="answering" class="answering" type="button" aria-haspopup="dialog" aria-label=${t('who_answers_words', { words })} onClick=${openAnswering}>${words}</button>`;
}

function Connection() {
  const lost = navigator.onLine ? t('reconnecting') : t('offline_reconnecting');
  const problem = state.current.problem ?? '';
  const kind = isLost() ? ' lost' : problem && ' failed';
  return html`<span id="connection" class=${`connection${kind}`} role="status">${isLost() ? lost : problem}</span>`;
}

const HeadButton = ({ id, label, title, icon, action }) =>
  html`<button id=${id} class="icon" type="button" aria-label=${label} title=${title} aria-haspopup="dialog" onClick=${action}><${Icon} name=${icon} /></button>`;

function openDrawer() {
  state.isDrawerOpen = true;
  redraw();
}

export function Head() {
  const title = isBlank() ? t('new_chat') : list.titleOf(state.current.name);
  useLayoutEffect(() => {
    document.title = title === t('new_chat') ? 'Perdure' : `${title} · Perdure`;
  }, [title]);
  return html`<header class="chat-head">
    <button id="open-sidebar" class="icon drawer-only" type="button" aria-label=${t('open_conversations')} aria-expanded=${String(state.isDrawerOpen)} aria-controls="sidebar" onClick=${openDrawer}><${Icon} name="menu" /></button>
    <h1 id="title" class="title" dir="auto">${title}</h1>
    <${Answering} known=${state.answering} />
    <${Connection} />
    <${HeadButton} id="open-sessions" label=${t('sessions')} title=${t('sessions_of_this_conversation')} icon="history" action=${openSessions} />
    <${HeadButton} id="open-permissions" label=${t('what_the_agent_may_do')} title=${t('what_the_agent_may_do')} icon="shield" action=${openPermissions} />
  </header>`;
}
