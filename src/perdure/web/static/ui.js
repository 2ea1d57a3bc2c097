// What the components of the page are made with: Preact and htm, in one file as they were released.

import { Component, html, useEffect, useState } from './vendor/htm-preact.standalone.mjs';
import { PATHS } from './icons.js';

export * from './vendor/htm-preact.standalone.mjs';

export function Icon({ name }) {
  return html`<svg viewBox="0 0 24 24" aria-hidden="true" class=${`glyph glyph-${name}`}><path d=${PATHS[name]} /></svg>`;
}

export const Button = ({ label, class: className, action, ...rest }) =>
  html`<button type="button" class=${className} onClick=${action} ...${rest}>${label}</button>`;

// A component that is loaded when it is drawn first. `load()` returns it.
export function lazily(load) {
  let Found = null;
  const loading = async () => (Found ??= await load());
  function Lazy(props) {
    const [, setLoaded] = useState(Found !== null);
    // It may have come since it was drawn, loaded for another place.
    useEffect(() => {
      loading().then(() => setLoaded(true), () => {});
    }, []);
    return Found && html`<${Found} ...${props} />`;
  }
  Lazy.loading = loading;
  return Lazy;
}

// What differs in no field is the same.
export function isAlike(a, b) {
  const fields = Object.keys(a);
  return fields.length === Object.keys(b).length && fields.every((field) => a[field] === b[field]);
}

// Draws again only when `isSame(before, after)` says that what is shown has not stayed the same.
export function remembered(draw, isSame = isAlike) {
  return class extends Component {
    shouldComponentUpdate(next) {
      return !isSame(this.props, next);
    }

    render(props) {
      return draw(props);
    }
  };
}

// Our own words, of which some are `code` and some are **strong**.
export function Marked({ text }) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part, at) => {
    if (at % 2 === 0) return part;
    return part.startsWith('`') ? html`<code>${part.slice(1, -1)}</code>` : html`<strong>${part.slice(2, -2)}</strong>`;
  });
}
