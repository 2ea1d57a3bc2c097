// The language of the page. All its words are in tables, one for each language. The table is loaded
// before anything is drawn.

import * as storage from './storage.js';

const CHOICE = 'perdure.language';
const FROM_THE_RIGHT = new Set(['ar', 'fa', 'he', 'ur']);

// What there is a table for, each by the name that its speakers use.
export const LANGUAGES = { en: 'English', de: 'Deutsch' };

const isKnown = (code) => Object.hasOwn(LANGUAGES, code);
const wanted = navigator.languages.map((each) => each.split('-')[0]);

// What the person has chosen on this device; empty: the browser's language.
export const chosen = storage.read(CHOICE) ?? '';
export const language = isKnown(chosen) ? chosen : (wanted.find(isKnown) ?? 'en');

// Times and numbers are written as the browser's owner writes them in this language.
export const locale = navigator.languages.find((each) => each.split('-')[0] === language) ?? language;

const words = await (await fetch(new URL(`./languages/${language}.json`, import.meta.url))).json();
const plural = new Intl.PluralRules(language);

document.documentElement.lang = language;
document.documentElement.dir = FROM_THE_RIGHT.has(chosen || wanted[0]) ? 'rtl' : 'ltr';

// The words of a key. `{name}` in them is replaced by the value of that name; where words depend on a
// number, `count` is that number.
export function t(key, values) {
  const found = words[key] ?? key;
  const text = typeof found === 'string' ? found : (found[plural.select(values.count)] ?? found.other);
  return values ? text.replace(/\{(\w+)\}/g, (whole, name) => shown(values[name]) ?? whole) : text;
}

const shown = (value) => (typeof value === 'number' ? number(value) : value);

export const number = (value, options) => value.toLocaleString(locale, options);

// The page is drawn anew; what was being written is kept.
export function choose(code) {
  if (isKnown(code)) storage.write(CHOICE, code);
  else storage.remove(CHOICE);
  location.reload();
}
