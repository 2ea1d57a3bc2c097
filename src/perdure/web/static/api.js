import * as storage from './storage.js';
import { language, t } from './language.js';

const TOKEN = 'perdure.token';

export const token = () => storage.read(TOKEN);
export const keepToken = (value) => storage.write(TOKEN, value);
export const forgetToken = () => storage.remove(TOKEN);

// status 0: the request may or may not have arrived; only an id makes it safe to repeat.
class Failure extends Error {
  constructor(message, { status = 0, code = 'unreachable', retryable = true, after_ms = 0 } = {}) {
    super(message);
    Object.assign(this, { status, code, retryable, after_ms });
  }
}

async function failureOf(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // A proxy's own error page.
  }
  const { status } = response;
  return new Failure(error.message ?? t('the_gateway_answered_status', { status }), {
    status,
    code: error.code ?? `http_${status}`,
    retryable: error.retryable ?? (status >= 500 || status === 429),
    after_ms: 1000 * (Number(response.headers.get('Retry-After')) || 0),
  });
}

export async function request(method, path, { json, body, headers = {}, signal, timeout_ms = 30_000 } = {}) {
  const sent = { Authorization: `Bearer ${token() ?? ''}`, ...headers };
  if (json !== undefined) sent['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: sent,
      body: json === undefined ? body : JSON.stringify(json),
      signal: signal ?? AbortSignal.timeout(timeout_ms),
      cache: 'no-store',
      credentials: 'omit',
    });
  } catch (error) {
    throw new Failure(t('the_gateway_cannot_be_reached'), { code: error.name });
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

async function answer(method, path, options) {
  const response = await request(method, path, options);
  try {
    return await response.json();
  } catch {
    throw new Failure(t('the_connection_ended_before_the'));
  }
}

const conversation = (name, tail) => `api/conversations/${encodeURIComponent(name)}/${tail}`;
const query = (values) => {
  const set = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  return set.length ? `?${new URLSearchParams(set)}` : '';
};

export const conversations = (cursor, shelf) => answer('GET', `api/conversations${query({ limit: 50, cursor, shelf })}`);

export const standing = (name) => answer('GET', `api/conversations/${encodeURIComponent(name)}`);

export const shelve = (name, wish) => answer('PATCH', `api/conversations/${encodeURIComponent(name)}`, { json: wish });

export const listEvents = (signal) => request('GET', 'api/events', { headers: { Accept: 'text/event-stream' }, signal });

export const transcript = (name, { limit, before, notices }) =>
  answer('GET', conversation(name, `transcript${query({ limit, before, notices })}`));

// The gateway replies in the language of the page.
export const post = (name, message) => answer('POST', conversation(name, 'messages'), { json: { ...message, language } });

export const context = (conversation) => answer('GET', `api/context${query({ conversation: conversation || null })}`);

export const jobs = () => answer('GET', 'api/jobs?limit=200');

export const commands = () => answer('GET', 'api/commands');

export const turn = (id) => answer('GET', `api/turns/${encodeURIComponent(id)}`);

export const turnMessages = (id) => answer('GET', `api/turns/${encodeURIComponent(id)}/messages`);

export const explain = (id) => answer('GET', `api/explain/${encodeURIComponent(id)}`);

export const search = (q, cursor) => answer('GET', `api/search${query({ q, limit: 20, cursor })}`);

export const sessions = (name) => answer('GET', `api/sessions${query({ limit: 100, conversation: name })}`);

export const sessionTranscript = (id, cursor) => answer('GET', `api/sessions/${encodeURIComponent(id)}/transcript${query({ limit: 500, cursor })}`);

export const stop = (id) => answer('POST', `api/turns/${encodeURIComponent(id)}/stop`);

// What was asked in these turns, and which of their calls may or may not have happened.
export const approvals = (turns) => answer('GET', `api/approvals${query({ turns: turns.join() })}`);

export const effects = (turns) => answer('GET', `api/effects${query({ turns: turns.join() })}`);

export const approval = (id) => answer('GET', `api/approvals/${encodeURIComponent(id)}`);

export const give = (id, given) => answer('POST', `api/approvals/${encodeURIComponent(id)}`, { json: given });

export const mark = (call, happened) =>
  answer('POST', `api/effects/${encodeURIComponent(call)}`, { json: { happened } });

export const tools = (conversation) => answer('GET', `api/tools${query({ conversation })}`);

export const grants = (cursor) => answer('GET', `api/grants${query({ limit: 200, cursor })}`);

export const revoke = (grant) => answer('DELETE', `api/grants/${encodeURIComponent(grant)}`);

// How a browser subscribes to notifications.
export const push = () => answer('GET', 'api/push');

export const subscribe = (subscription) => answer('POST', 'api/push', { json: subscription });

export const unsubscribe = (id) => answer('DELETE', `api/push/${encodeURIComponent(id)}`);

export const status = () => answer('GET', 'api/status');

export const whoIs = (candidate) =>
  answer('GET', 'api/status', { headers: { Authorization: `Bearer ${candidate}` } });

export const events = (name, lastId, signal) =>
  request('GET', conversation(name, 'events'), {
    headers: { Accept: 'text/event-stream', ...(lastId ? { 'Last-Event-ID': lastId } : {}) },
    signal,
  });

// Header values are Latin-1, file names are not.
export const upload = (file) =>
  answer('POST', 'api/media', {
    body: file,
    headers: {
      'Content-Type': file.type || 'application/octet-stream',
      'X-Filename': encodeURIComponent(file.name || 'pasted'),
    },
    timeout_ms: 300_000,
  });

export const media = async (id) => (await request('GET', `api/media/${encodeURIComponent(id)}`)).blob();
