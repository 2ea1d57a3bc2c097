// Shows notifications while nobody looks at the page, and leads back to it. It keeps nothing and
// answers no request of the page.

const WORDS_MS = 2000;
const KINDS = {
  answer: (t) => t('notified_answer'),
  failure: (t) => t('notified_failure'),
  approval: (t) => t('notified_approval'),
  question: (t) => t('notified_question'),
};

// Of the page's tables of words, in the first of the browser's languages that there is.
async function words() {
  for (const each of [...navigator.languages, 'en']) {
    try {
      const url = new URL(`static/languages/${each.split('-')[0]}.json`, self.registration.scope);
      const found = await fetch(url, { signal: AbortSignal.timeout(WORDS_MS) });
      if (found.ok) return await found.json();
    } catch {
      // The gateway cannot be reached from here. It is told all the same.
    }
  }
  return {};
}

const addressOf = (conversation) => new URL(`#c=${encodeURIComponent(conversation)}`, self.registration.scope).href;

const pages = () => self.clients.matchAll({ type: 'window', includeUncontrolled: true });

async function shown(told) {
  const { kind, conversation, title } = told;
  const url = addressOf(conversation);
  const isSeen = (await pages()).some((page) => page.visibilityState === 'visible' && page.focused && page.url === url);
  if (isSeen) return;
  const found = await words();
  const t = (key) => found[key] ?? '';
  await self.registration.showNotification(title || t('notified_title') || 'Perdure', {
    body: KINDS[kind]?.(t) ?? '',
    icon: new URL('static/icon-192.png', self.registration.scope).href,
    // What is new of a conversation takes the place of what was told before.
    tag: conversation,
    renotify: true,
    data: { conversation },
  });
}

async function opened(conversation) {
  const [page] = await pages();
  if (!page) {
    await self.clients.openWindow(addressOf(conversation));
    return;
  }
  page.postMessage({ open: conversation });
  // A browser may refuse this where nobody has clicked.
  await page.focus().catch(() => {});
}

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('push', (event) => event.waitUntil(shown(event.data.json())));
self.addEventListener('notificationclick', (event) => {
  event.notification.close();
  event.waitUntil(opened(event.notification.data.conversation));
});
