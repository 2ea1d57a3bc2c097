// What a text needs beside markdown: colours in code, formulas, and diagrams. Each comes with a
// library that is loaded when the first text needs it.

import { t } from './language.js';
import { loadScript, loadStyle } from './scripts.js';

const HIGHLIGHTER = './vendor/highlight.min.js';
const DARK = matchMedia('(prefers-color-scheme: dark)');
const FORMULAS = './vendor/katex.min.js';
// Colours are no help in what nobody reads, and take time.
const CODE_MAX = 50_000;

// A library that is not there must not cost the text: it stays as it is.
async function withLibrary(path, name, act) {
  try {
    await loadScript(path);
    act(window[name]);
  } catch (error) {
    console.warn(error.message);
  }
}

function colour(code) {
  const language = code.dataset.language;
  return withLibrary(HIGHLIGHTER, 'hljs', (hljs) => {
    if (!code.isConnected || !hljs.getLanguage(language)) return;
    const { value } = hljs.highlight(code.textContent, { language, ignoreIllegals: true });
    const template = document.createElement('template');
    template.innerHTML = value;
    code.replaceChildren(template.content);
    code.classList.add('coloured');
  });
}

// Drawn as MathML, which browsers show and screen readers say without a style sheet or fonts.
function formula(node) {
  node.textContent = node.dataset.tex;
  return withLibrary(FORMULAS, 'katex', (katex) => {
    if (!node.isConnected) return;
    const options = { output: 'mathml', throwOnError: false, displayMode: node.classList.contains('display'), maxExpand: 200, maxSize: 20 };
    katex.render(node.dataset.tex, node, options);
  });
}

// Diagrams need styles of their own, which this page's policy forbids: they are drawn in a frame that
// may run scripts and nothing else, and cannot reach this page.
function diagram(box) {
  const code = box.querySelector('code');
  const frame = document.createElement('iframe');
  frame.setAttribute('sandbox', 'allow-scripts');
  frame.title = t('diagram');
  frame.className = 'diagram';
  frame.src = new URL('./diagram.html', import.meta.url);
  const hear = ({ source, data }) => {
    if (!frame.isConnected) forget();
    if (source !== frame.contentWindow) return;
    if (data.isReady) ask();
    else if (data.height) {
      frame.style.height = `${Math.min(data.height, 1200)}px`;
      box.classList.add('drawn');
    } else if (data.problem) {
      frame.remove();
      forget();
    }
  };
  const ask = () => frame.contentWindow?.postMessage({ code: code.textContent, isDark: DARK.matches }, '*');
  const forget = () => {
    removeEventListener('message', hear);
    DARK.removeEventListener('change', ask);
  };
  addEventListener('message', hear);
  DARK.addEventListener('change', ask);
  box.querySelector('.code-head').after(frame);
}

export function enrich(body) {
  loadStyle('./rich.css');
  for (const code of body.querySelectorAll('code[data-language]:not(.coloured)')) {
    if (code.dataset.language === 'mermaid') {
      if (!code.closest('.code').querySelector('iframe')) diagram(code.closest('.code'));
    } else if (code.textContent.length < CODE_MAX) colour(code);
  }
  for (const node of body.querySelectorAll('.math:empty')) formula(node);
}
