// A menu that belongs to a button: it opens beside it, is moved through with the arrows, and gives
// the focus back.

import { Icon, html, useEffect, useLayoutEffect, useRef, useState } from '../ui.js';

const GAP_PX = 4;

function place(menu, button) {
  const from = button.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const isRtl = getComputedStyle(button).direction === 'rtl';
  const left = isRtl ? from.left : from.right - width;
  const below = from.bottom + GAP_PX;
  const top = below + height > innerHeight ? from.top - height - GAP_PX : below;
  menu.style.left = `${Math.max(GAP_PX, Math.min(left, innerWidth - width - GAP_PX))}px`;
  menu.style.top = `${Math.max(GAP_PX, top)}px`;
}

function step(menu, by) {
  const items = [...menu.querySelectorAll('[role=menuitem]')];
  const at = items.indexOf(document.activeElement);
  items[(at + by + items.length) % items.length]?.focus();
}

function Opened({ items, button, close }) {
  const menu = useRef(null);
  useLayoutEffect(() => {
    place(menu.current, button.current);
    menu.current.firstElementChild?.focus({ preventScroll: true });
  }, []);
  useEffect(() => {
    const away = (event) => {
      if (!menu.current?.contains(event.target) && !button.current?.contains(event.target)) close();
    };
    addEventListener('pointerdown', away, true);
    addEventListener('scroll', away, true);
    return () => {
      removeEventListener('pointerdown', away, true);
      removeEventListener('scroll', away, true);
    };
  }, []);
  const keyed = (event) => {
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves) step(menu.current, moves[event.key]);
    else if (event.key === 'Escape' || event.key === 'Tab') close({ isBack: true });
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const choose = (act) => {
    close({ isBack: true });
    act();
  };
  return html`<div class="menu" role="menu" ref=${menu} onKeyDown=${keyed}>
    ${items.map(({ label, act, isDangerous }) => html`<button key=${label} type="button" role="menuitem" tabindex="-1" class=${isDangerous ? 'dangerous' : ''} onClick=${() => choose(act)}>${label}</button>`)}
  </div>`;
}

export function Menu({ label, items }) {
  const [isOpen, setOpen] = useState(false);
  const button = useRef(null);
  const close = ({ isBack = false } = {}) => {
    setOpen(false);
    if (isBack) button.current?.focus({ preventScroll: true });
  };
  return html`
    <button type="button" class="icon tiny options" ref=${button} aria-label=${label} title=${label} aria-haspopup="menu" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}><${Icon} name="more" /></button>
    ${isOpen ? html`<${Opened} items=${items} button=${button} close=${close} />` : null}`;
}
