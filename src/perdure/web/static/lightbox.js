// A picture as large as the window, over the page.

import { loadStyle } from './scripts.js';
import { t } from './language.js';

const dialog = document.getElementById('lightbox');
const image = document.getElementById('lightbox-image');
const close = () => dialog.close();

dialog.addEventListener('click', close);
dialog.addEventListener('close', () => image.removeAttribute('src'));

export async function enlarge(source, words) {
  await loadStyle('./rich.css');
  image.src = source;
  image.alt = words;
  dialog.setAttribute('aria-label', words || t('Picture'));
  dialog.showModal();
}
