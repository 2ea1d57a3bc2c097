// The whole page: the sign-in, or the list of conversations and the one that is shown.

import { openSearch, openSettings, listActs, rowActs } from './acts.js';
import { Composer } from './composer/composer.js';
import { Panel } from './dialogs/panel.js';
import { PageQuestion } from './dialogs/question.js';
import { Empty } from './empty.js';
import { Head } from './head.js';
import { t } from './language.js';
import { startNew } from './opened.js';
import { Rows, follow, scroller, shown } from './reading.js';
import { commands, draft, editLast, isBlank, outbox, send, stop, stopEditing } from './sending.js';
import { Sidebar } from './sidebar/sidebar.js';
import { list } from './sidebar/list.js';
import { SignIn } from './signin.js';
import { state } from './state.js';
import { isActive } from './transcript.js';
import { Icon, html, lazily, useLayoutEffect, useRef, useState } from './ui.js';

function Messages() {
  const { current } = state;
  const box = useRef(null);
  useLayoutEffect(() => scroller.attach(box.current), []);
  const { rows, isEmpty } = shown(current, outbox.of(current.name));
  return html`<div class="log-frame">
    <div id="scroller" class="scroller" tabindex="-1" ref=${box}>
      <div class="column">
        ${current.isLoadingOlder ? html`<p class="older">${t('loading_earlier_messages')}</p>` : null}
        ${isEmpty ? html`<${Empty} agents=${state.agents} />` : null}
        <div id="log" class="log" role="log" aria-live="polite" aria-relevant="additions" aria-label=${t('messages')}>
          <${Rows} key=${current.name} rows=${rows} acts=${rowActs} />
        </div>
      </div>
    </div>
    <button id="jump" class="jump" type="button" hidden=${scroller.isFollowing} onClick=${follow}><span><${Icon} name="down" /></span>${t('jump_to_latest')}</button>
  </div>`;
}

const hasFiles = (event) => event.dataTransfer?.types.includes('Files');

function Chat() {
  const zone = useRef(null);
  const [isOver, setOver] = useState(false);
  const over = (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    setOver(true);
  };
  const left = (event) => zone.current.contains(event.relatedTarget) || setOver(false);
  const dropped = (event) => {
    setOver(false);
    if (!hasFiles(event)) return;
    event.preventDefault();
    draft.attach(event.dataTransfer.files);
  };
  const { transcript } = state.current;
  const canStop = isActive(transcript) && Boolean(transcript.turn);
  return html`<main class="chat" id="chat" ref=${zone} onDragOver=${over} onDragLeave=${left} onDrop=${dropped}>
    <${Head} />
    <${Messages} />
    <${Composer} draft=${draft} commands=${commands} acts=${composing} canStop=${canStop} version=${`${draft.version} ${commands.version}`} />
    ${isOver ? html`<div class="drop"><span>${t('drop_files_to_attach_them')}</span></div>` : null}
  </main>`;
}

const composing = { submit: send, stop, stopEditing, up: editLast };
const listing = { ...listActs, create: startNew, search: openSearch, settings: openSettings };

const Lightbox = lazily(async () => {
  const { Lightbox: found, styled } = await import('./dialogs/lightbox.js');
  await styled();
  return found;
});

export function Page() {
  const { place, current, isDrawerOpen, jobs, panel, question, picture } = state;
  if (place === 'signin') return html`<${SignIn} />${question && html`<${PageQuestion} key=${question.id} question=${question} />`}`;
  if (place !== 'chat' || !current) return null;
  const local = [...new Set([...(isBlank() ? [] : [current.name]), ...outbox.conversations()])].join('\n');
  return html`
    <div id="app" class="app">
      <${Sidebar} current=${current.name} local=${local} version=${list.version} isOpen=${isDrawerOpen} jobs=${jobs} acts=${listing} />
      <${Chat} />
    </div>
    <${Panel} panel=${panel} />
    ${question ? html`<${PageQuestion} key=${question.id} question=${question} />` : null}
    ${picture ? html`<${Lightbox} ...${picture} />` : null}`;
}
