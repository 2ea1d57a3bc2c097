// The language of the page. English is in the code; other languages are tables from the English words
// to theirs, and what a table lacks stays English. The table is loaded before anything is drawn.

const KNOWN = new Set(['de']);
const FROM_THE_RIGHT = new Set(['ar', 'fa', 'he', 'ur']);

const wanted = navigator.languages.map((each) => each.split('-')[0]);
const chosen = wanted.find((each) => each === 'en' || KNOWN.has(each)) ?? 'en';
let words = {};

if (chosen !== 'en') {
  try {
    words = await (await fetch(new URL(`./languages/${chosen}.json`, import.meta.url))).json();
    document.documentElement.lang = chosen;
  } catch {
    // English is better than nothing.
  }
}
if (FROM_THE_RIGHT.has(wanted[0])) document.documentElement.dir = 'rtl';

// `{name}` in the words is replaced by the value of that name.
export function t(text, values) {
  const found = words[text] ?? text;
  return values ? found.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole) : found;
}

const ATTRIBUTES = ['aria-label', 'title', 'placeholder'];

// What stands in the page from the beginning.
export function translate(root) {
  if (!Object.keys(words).length) return;
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode;
    const found = words[node.nodeValue.trim()];
    if (found) node.nodeValue = node.nodeValue.replace(node.nodeValue.trim(), () => found);
  }
  for (const element of root.querySelectorAll(ATTRIBUTES.map((name) => `[${name}]`).join())) {
    for (const name of ATTRIBUTES) {
      const found = words[element.getAttribute(name)];
      if (found) element.setAttribute(name, found);
    }
  }
}
