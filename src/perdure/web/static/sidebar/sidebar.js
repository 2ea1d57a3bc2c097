// The list of conversations, with what can be done with each, and the ways to the other parts.

import { t } from '../language.js';
import { Button, Icon, html, remembered, useEffect, useLayoutEffect, useRef, useState } from '../ui.js';
import { redraw, state } from '../state.js';
import { GROUPS, shortTime } from '../words.js';
import { list } from './list.js';
import { Menu } from './menu.js';

const NARROW = matchMedia('(max-width: 760px)');

function Rename({ name, title, save, cancel }) {
  const field = useRef(null);
  useLayoutEffect(() => field.current.select(), []);
  const keyed = (event) => {
    if (event.isComposing) return;
    if (event.key === 'Escape') {
      event.stopPropagation();
      event.preventDefault();
      cancel();
    } else if (event.key === 'Enter') save(name, field.current.value);
  };
  return html`<input class="rename" ref=${field} value=${title} aria-label=${t('new_name')} maxlength="100" dir="auto" onKeyDown=${keyed} onBlur=${cancel} />`;
}

function Mark({ state, queued, unread, at }) {
  if (state === 'waiting') return html`<span class="waits">${t('asks_you')}</span>`;
  if (state && state !== 'idle' && state !== 'suspended') {
    return html`<span class="dot"><span class="visually-hidden">${queued ? t('answering_count_queued', { count: queued }) : t('answering')}</span></span>`;
  }
  if (unread) return html`<span class="unread-mark"><span class="visually-hidden">${t('unread')}</span></span>`;
  return at ? html`<span class="when">${shortTime(at)}</span>` : null;
}

function Entry({ row, title, isCurrent, isRenaming, acts }) {
  const { name, pinned, archived, unread, isLocal } = row;
  const items = [
    { label: t('rename'), act: () => acts.name(name) },
    { label: archived ? t('unarchive') : t('archive'), act: () => acts.put(name, { archived: !archived }) },
    { label: pinned ? t('unpin') : t('pin'), act: () => acts.put(name, { pinned: !pinned }) },
    { label: t('delete'), act: () => acts.remove(name), isDangerous: true },
  ];
  return html`<li class=${unread && !isCurrent ? 'unread' : ''}>
    ${isRenaming
      ? html`<${Rename} name=${name} title=${title} save=${acts.save} cancel=${() => acts.name(null)} />`
      : html`<a href=${`#c=${encodeURIComponent(name)}`} title=${name} aria-current=${isCurrent ? 'page' : null}>
          <span class="conversation-title" dir="auto">${title}</span><${Mark} ...${row} unread=${unread && !isCurrent} />
        </a>
        ${isLocal ? null : html`<${Menu} label=${t('conversation_options')} items=${items} />`}`}
  </li>`;
}

function Groups({ current, local, acts }) {
  const [renaming, setRenaming] = useState(null);
  const named = {
    ...acts,
    // A field that is taken away loses the focus while it is drawn.
    name: (name) => queueMicrotask(() => setRenaming(name)),
    save: (name, title) => {
      named.name(null);
      if (title.trim() && title.trim() !== list.titleOf(name)) acts.rename(name, title.trim());
    },
  };
  return list.groups(local, Date.now()).map(([group, rows]) => html`<section key=${group}>
    <h2>${GROUPS[group] ?? group}</h2>
    <ul>${rows.map((row) => html`<${Entry} key=${row.name} row=${row} title=${list.titleOf(row.name)} isCurrent=${row.name === current} isRenaming=${row.name === renaming} acts=${named} />`)}</ul>
  </section>`);
}

function toggle(isOpen) {
  state.isDrawerOpen = isOpen;
  redraw();
}

// On a narrow screen the list is a drawer: it takes the focus, and gives it back.
function useDrawer(isOpen) {
  const closer = useRef(null);
  const wasOpen = useRef(false);
  const [isNarrow, setNarrow] = useState(NARROW.matches);
  useLayoutEffect(() => {
    if (isOpen && isNarrow) closer.current.focus();
    else if (wasOpen.current && isNarrow && document.activeElement?.id !== 'text') document.getElementById('open-sidebar').focus();
    wasOpen.current = isOpen;
  }, [isOpen]);
  useEffect(() => {
    const turned = () => {
      setNarrow(NARROW.matches);
      toggle(false);
    };
    const keyed = (event) => {
      if (event.key !== 'Escape' || !isOpen || event.defaultPrevented) return;
      event.preventDefault();
      toggle(false);
    };
    NARROW.addEventListener('change', turned);
    document.addEventListener('keydown', keyed);
    return () => {
      NARROW.removeEventListener('change', turned);
      document.removeEventListener('keydown', keyed);
    };
  }, [isOpen]);
  return { closer, isDrawer: isNarrow };
}

function Drawn({ current, local, isOpen, jobs, acts }) {
  const { closer, isDrawer } = useDrawer(isOpen);
  const names = local ? local.split('\n') : [];
  return html`
    <nav id="sidebar" class=${isOpen && isDrawer ? 'sidebar open' : 'sidebar'} aria-label=${t('conversations')} inert=${isDrawer && !isOpen}>
      <div class="sidebar-head">
        <span class="brand"><img src="static/icon.svg" alt="" width="22" height="22" />Perdure</span>
        <button id="close-sidebar" ref=${closer} class="icon drawer-only" type="button" aria-label=${t('close_conversations')} onClick=${() => toggle(false)}><${Icon} name="close" /></button>
      </div>
      <button id="new-chat" class="new-chat" type="button" onClick=${acts.create}><${Icon} name="plus" />${t('new_chat')}</button>
      <button id="search" class="search" type="button" aria-keyshortcuts="Control+K" onClick=${acts.search}><${Icon} name="search" />${t('search')}<kbd aria-hidden="true">Ctrl K</kbd></button>
      <div id="conversations" class="conversations"><${Groups} current=${current} local=${names} acts=${acts} />
        ${list.hasMore ? html`<${More} key=${list.version} />` : null}
      </div>
      <p class="error" role="status" hidden=${!list.problem}>${list.problem}</p>
      <${Ways} jobs=${jobs} acts=${acts} />
    </nav>
    ${isDrawer && isOpen ? html`<div class="backdrop" onClick=${() => toggle(false)}></div>` : null}`;
}

// The next page is read when its place comes into sight, and not before.
function More() {
  const place = useRef(null);
  useEffect(() => {
    const seen = new IntersectionObserver((found) => found.some((each) => each.isIntersecting) && list.showMore());
    seen.observe(place.current);
    return () => seen.disconnect();
  }, []);
  return html`<div ref=${place} class="more"><${Button} class="quiet" label=${t('show_more')} action=${() => list.showMore()} /></div>`;
}

function Ways({ jobs, acts }) {
  return html`<div class="ways">
    <button id="show-archived" class="way" type="button" aria-pressed=${String(list.isArchive)} onClick=${() => list.toggleArchive()}>${t('archived')}</button>
    <a class="way" href="static/jobs.html">${jobs ? t('jobs_active', { count: jobs }) : t('jobs')}</a>
    <button id="settings" class="icon" type="button" aria-label=${t('settings')} title=${t('settings')} aria-haspopup="dialog" onClick=${acts.settings}><${Icon} name="settings" /></button>
  </div>`;
}

export const Sidebar = remembered((props) => html`<${Drawn} ...${props} />`);
