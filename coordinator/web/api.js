// Calls to the coordinator: keys, errors in words, and nothing else.

import {session} from './storage.js';

const kTimeoutMs = 15000;

// What went wrong, ready to be shown. status 0: no answer at all.
export class ApiError extends Error {
  constructor(message, facts) {
    super(message);
    Object.assign(this, {status: 0, code: null, param: null, requestId: null, retryAfter: 0});
    Object.assign(this, facts);
  }
}

// Kept for this tab only. Neither opens what is the other's: operators' keys serve no inference.
const kKeyNames = {admin: 'shardline.key.admin', api: 'shardline.key.api'};

export function keyOf(scope) {
  return session.getItem(kKeyNames[scope]) || '';
}

export function setKey(scope, key) {
  if (key) session.setItem(kKeyNames[scope], key);
  else session.removeItem(kKeyNames[scope]);
}

let onKeyNeeded = () => {};

// `ask(scope)` is called when the server answers 401; it should ask a person for setKey().
export function whenKeyIsNeeded(ask) {
  onKeyNeeded = ask;
}

function scopeOf(path) {
  return path.startsWith('/admin/') ? 'admin' : 'api';
}

// The response once its head is there and is a success; its body is the caller's.
// `isQuiet`: nobody is asked for a key.
export async function open(method, path, {body, headers, signal, isQuiet} = {}) {
  const scope = scopeOf(path);
  const all = {...headers};
  const key = keyOf(scope);
  if (key) all['Authorization'] = `Bearer ${key}`;
  if (method !== 'GET') all['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, {
      method, headers: all, signal, cache: 'no-store', credentials: 'omit', redirect: 'error',
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('The coordinator does not answer.', {status: 0, code: 'unreachable'});
  }
  if (response.ok) return response;
  const problem = await errorOf(response);
  if (problem.status === 401 && !isQuiet) onKeyNeeded(scope);
  throw problem;
}

// The whole answer as JSON.
export async function call(method, path, body, {isQuiet} = {}) {
  const timeout = new AbortController();
  const timer = setTimeout(() => timeout.abort(), kTimeoutMs);
  try {
    const response = await open(method, path, {body, signal: timeout.signal, isQuiet});
    return response.status === 204 ? null : await response.json();
  } catch (error) {
    if (error instanceof ApiError) throw error;
    const what = error.name === 'AbortError' ? `No answer within ${kTimeoutMs / 1000} s.`
                                             : 'The answer is not JSON.';
    throw new ApiError(what, {status: 0, code: 'bad_answer'});
  } finally {
    clearTimeout(timer);
  }
}

async function errorOf(response) {
  let envelope = {};
  try {
    envelope = await response.json();
  } catch {
    // A proxy's page, say: the status has to do.
  }
  const error = (envelope && envelope.error) || {};
  return new ApiError(error.message || `HTTP ${response.status} ${response.statusText}`.trim(), {
    status: response.status,
    code: error.code || null,
    param: error.param || null,
    loading: envelope ? envelope.loading : undefined,
    requestId: response.headers.get('x-request-id'),
    retryAfter: Number(response.headers.get('retry-after')) || 0,
  });
}
