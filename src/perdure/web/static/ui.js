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
  const loading = () => load().then((component) => (Found = component));
  function Lazy(props) {
    const [, setLoaded] = useState(Found !== null);
    useEffect(() => {
      if (!Found) loading().then(() => setLoaded(true), () => {});
    }, []);
    return Found && html`<${Found} ...${props} />`;
  }
  Lazy.loading = loading;
  return Lazy;
}

// Draws again only when `isSame(before, after)` says that what is shown has changed.
export function remembered(draw, isSame) {
  return class extends Component {
    shouldComponentUpdate(next) {
      return !isSame(this.props, next);
    }

    render(props) {
      return draw(props);
    }
  };
}
