// Media are fetched with the token, and shown as data: URLs because the page's policy allows no
// blob: images.

import * as api from './api.js';
import { make } from './elements.js';
import { icon } from './icons.js';

const SHOWN = /^image\/(png|jpeg|gif|webp|avif)$/;
const CACHE_MAX = 40;
const cache = new Map();

const dataUrl = (blob) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });

function fetched(id) {
  if (!cache.has(id)) {
    if (cache.size >= CACHE_MAX) cache.delete(cache.keys().next().value);
    const promise = api.media(id);
    promise.catch(() => cache.delete(id));
    cache.set(id, promise);
  }
  return cache.get(id);
}

async function save(id, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(await fetched(id));
  link.download = name || id;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function fileButton(id, name, label) {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'file';
  button.append(icon('file'), label || name || 'Attachment');
  button.addEventListener('click', () => {
    save(id, name).catch((failure) => {
      button.title = failure.message;
      button.classList.add('failed');
    });
  });
  return button;
}

export function attached(attachments) {
  if (!attachments.length) return null;
  const list = make('div', 'attached');
  for (const { media, url, name, mime } of attachments) {
    const holder = make('span', 'media');
    if (media) drawMedia(holder, { id: media, name, mime });
    else holder.textContent = name || url || 'Attachment';
    list.append(holder);
  }
  return list;
}

export async function drawMedia(holder, { id, name = '', mime = '', label = '' }) {
  holder.replaceChildren(fileButton(id, name, label));
  if (mime && !SHOWN.test(mime)) return;
  try {
    const blob = await fetched(id);
    if (!SHOWN.test(blob.type)) return;
    const image = document.createElement('img');
    image.src = await dataUrl(blob);
    image.alt = name || 'Attached image';
    await image.decode();
    holder.replaceChildren(image);
  } catch {
    // The button stays, and says what is wrong when it is used.
  }
}
