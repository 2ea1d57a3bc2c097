// Notifications of this browser: whether they can be had, and how they are turned on and off. The
// gateway sends them, and sw.js shows them.

import * as api from './api.js';
import * as storage from './storage.js';

const WANTED = 'perdure.notified';
const WORKER = 'sw.js';

const bytesOf = (text) => Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (char) => char.charCodeAt(0));

const isSame = (one, other) => one && one.byteLength === other.length && new Uint8Array(one).every((byte, at) => byte === other[at]);

// Why this browser cannot be notified: the key of the words that say so. Empty if it can.
export function problem() {
  if (!window.isSecureContext) return 'insecure';
  if (!('serviceWorker' in navigator) || !('PushManager' in window) || !('Notification' in window)) return 'unable';
  return Notification.permission === 'denied' ? 'denied' : '';
}

export const isOn = () => problem() === '' && Notification.permission === 'granted' && Boolean(storage.read(WANTED));

async function subscription(key) {
  const worker = await navigator.serviceWorker.register(WORKER);
  const known = await worker.pushManager.getSubscription();
  // A browser keeps a subscription with the key that it was made for, which another gateway has not.
  if (known && !isSame(known.options.applicationServerKey, key)) await known.unsubscribe();
  return worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
}

// Asks the person if need be. Returns the key of the words for what is in the way, empty if nothing.
export async function turnOn() {
  if (problem()) return problem();
  if ((await Notification.requestPermission()) !== 'granted') return problem() || 'not_allowed';
  const { key } = await api.push();
  let made;
  try {
    made = await subscription(bytesOf(key));
  } catch {
    return 'no_service';
  }
  const { id } = await api.subscribe(made.toJSON());
  storage.write(WANTED, id);
  return '';
}

export async function turnOff() {
  const id = storage.read(WANTED);
  storage.remove(WANTED);
  const worker = await navigator.serviceWorker.getRegistration();
  await (await worker?.pushManager.getSubscription())?.unsubscribe();
  // Whoever was signed in before may have turned it on; then it is not ours to take away.
  if (id) await api.unsubscribe(id).catch((failure) => failure.status === 404 || Promise.reject(failure));
}

// Browsers change their addresses now and then, and the gateway forgets them when a token ends.
export async function renew() {
  if (isOn()) await turnOn();
}
