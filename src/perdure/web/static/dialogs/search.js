// Search over everything that one may see, with jumps to what was found.

import * as api from '../api.js';
import { html, useEffect, useLayoutEffect, useRef, useState } from '../ui.js';
import { plainTitle, shortTime } from '../words.js';
import { t } from '../language.js';

const PAUSE_MS = 200;

// The words that were looked for are marked in what was found.
function marked(text, query) {
  const words = query.trim().split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  if (!words.length) return text;
  return text.split(new RegExp(`(${words.join('|')})`, 'giu')).map((part, at) => (at % 2 ? html`<mark>${part}</mark>` : part));
}

function useHits(query) {
  const [found, setFound] = useState({ hits: [], next: null, problem: '', isDone: true });
  const ask = async (cursor, before) => {
    try {
      const page = await api.search(query.trim(), cursor);
      return { hits: [...before, ...page.hits], next: page.next, problem: '', isDone: true };
    } catch (failure) {
      if (failure.status === undefined) throw failure;
      return { hits: before, next: null, problem: failure.message, isDone: true };
    }
  };
  useEffect(() => {
    let isOld = false;
    setFound((known) => ({ ...known, isDone: !query.trim(), hits: query.trim() ? known.hits : [] }));
    const timer = setTimeout(async () => {
      const page = query.trim() ? await ask(null, []) : null;
      if (page && !isOld) setFound(page);
    }, PAUSE_MS);
    return () => {
      isOld = true;
      clearTimeout(timer);
    };
  }, [query]);
  const more = async () => setFound(await ask(found.next, found.hits));
  return { ...found, more };
}

export function Search({ first, titleOf, go, close }) {
  const [query, setQuery] = useState(first);
  const { hits, next, problem, isDone, more } = useHits(query);
  const field = useRef(null);
  useLayoutEffect(() => {
    field.current.focus();
    field.current.setSelectionRange(first.length, first.length);
  }, []);
  // Else the first Escape would only empty the field.
  const keyed = (event) => {
    if (event.key !== 'Escape' || event.isComposing) return;
    event.preventDefault();
    close();
  };
  const submit = (event) => {
    event.preventDefault();
    if (hits[0]) go(hits[0]);
  };
  const words = problem || (query.trim() && isDone && !hits.length ? t('nothing_was_found') : '');
  return html`
    <form role="search" onSubmit=${submit}>
      <input type="search" ref=${field} aria-label=${t('search_in_all_conversations')} placeholder=${t('search_in_all_conversations')} dir="auto" value=${query} onKeyDown=${keyed} onInput=${(event) => setQuery(event.currentTarget.value)} />
    </form>
    <ul class="hits">${hits.map((hit) => html`<li key=${hit.cursor}>
      <button type="button" class="hit" onClick=${() => go(hit)}>
        <span class="hit-head"><strong dir="auto">${titleOf(hit.conversation)}</strong><span class="meta">${hit.archived ? `${t('archived')} · ` : ''}${hit.role === 'user' ? t('you') : t('answer')} · ${shortTime(hit.at)}</span></span>
        <span class="hit-text" dir="auto">${marked(plainTitle(hit.text), query)}</span>
      </button>
    </li>`)}</ul>
    ${next ? html`<button type="button" class="quiet small" onClick=${more}>${t('show_more')}</button>` : null}
    <p role="status" class=${problem ? 'error' : ''}>${words}</p>`;
}
