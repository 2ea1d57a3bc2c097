// Media are fetched with the token, and shown as data: URLs because the page's policy allows no
// blob: images.

import * as api from './api.js';

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

export async function save(id, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(await fetched(id));
  link.download = name || id;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export const bytes = async (id) => (await fetched(id)).arrayBuffer();

// A picture as an address that can be shown; null for anything else.
export async function picture(id, mime = '') {
  if (mime && !SHOWN.test(mime)) return null;
  const blob = await fetched(id);
  if (!SHOWN.test(blob.type)) return null;
  const image = new Image();
  image.src = await dataUrl(blob);
  await image.decode();
  return image.src;
}
