// One answer as it streams in: what has come, how it ended, and what it took. Pure.
//
// An answer is whole only when its finish_reason has come. Whatever else ends the stream leaves a
// broken answer that says why: it is shown, and never sent back to the model as if it were one.

import {num} from './format.js';

const kRateFromS = 0.25;  // A rate over less is noise.

export class Answer {
  constructor(nowMs) {
    this.phase = 'waiting';   // "reading", "writing", then "done", "stopped" or "broken".
    this.content = '';
    this.reasoning = '';
    this.finish = null;       // finish_reason.
    this.error = null;        // {message, code, status, requestId, retryAfter} of what broke it.
    this.progress = null;     // {done, total, cached} of the prompt.
    this.usage = null;
    this.timings = null;
    this.pieces = 0;
    this.startedAt = nowMs;
    this.firstAt = 0;
    this.lastAt = 0;
    this.heardAt = nowMs;     // Of the last news, whatever it was.
    this.served = null;       // {requestId, nodes, plan, session}.
  }

  // The head of the response.
  takeHeaders(headers) {
    this.served = {
      requestId: headers.get('x-request-id') || '',
      nodes: (headers.get('x-shardline-nodes') || '').split(',').map((n) => n.trim())
        .filter(Boolean),
      plan: headers.get('x-shardline-plan') || '',
      session: headers.get('x-shardline-session') || '',
    };
  }

  // The data of one event. True: the stream is over.
  take(data, nowMs) {
    this.heardAt = nowMs;
    if (data === '[DONE]') return true;
    let chunk;
    try {
      chunk = JSON.parse(data);
    } catch {
      this.breakOff({message: 'The stream holds something that is not JSON.', code: 'bad_stream'});
      return true;
    }
    if (chunk.error) {
      this.breakOff(chunk.error);
      return true;
    }
    if (chunk.usage) this.usage = chunk.usage;
    if (chunk.timings) this.timings = chunk.timings;
    if (chunk.prompt_progress && this.phase !== 'writing') {
      const {processed, total, cache} = chunk.prompt_progress;
      this.progress = {done: num(processed), total: num(total), cached: num(cache)};
      this.phase = 'reading';
    }
    const choice = (chunk.choices || [])[0];
    if (choice) this.takeChoice(choice, nowMs);
    return false;
  }

  takeChoice(choice, nowMs) {
    const delta = choice.delta || {};
    const thought = delta.reasoning_content || delta.reasoning || '';
    if (delta.content || thought) {
      this.content += delta.content || '';
      this.reasoning += thought;
      this.phase = 'writing';
      this.firstAt = this.firstAt || nowMs;
      this.lastAt = nowMs;
      ++this.pieces;
    }
    if (choice.finish_reason) this.finish = choice.finish_reason;
  }

  // The stream is over, in whatever way.
  end() {
    if (this.phase === 'broken' || this.phase === 'stopped') return;
    if (this.finish) {
      this.phase = 'done';
      return;
    }
    this.breakOff({code: 'stream_incomplete', message: this.content
      ? 'The stream ended before the answer did: no finish reason came. This is not a whole answer.'
      : 'The stream ended without an answer.'});
  }

  stop() {
    if (this.isOver()) return;
    this.phase = this.finish ? 'done' : 'stopped';
  }

  breakOff(error) {
    this.phase = 'broken';
    this.error = {
      message: String(error.message || 'The answer broke off.'), code: error.code || null,
      status: error.status || 0, requestId: error.requestId || null,
      retryAfter: error.retryAfter || 0,
    };
  }

  isOver() {
    return this.phase === 'done' || this.phase === 'stopped' || this.phase === 'broken';
  }

  // What was measured: the server's figures where it gave them, else ours.
  stats() {
    const seconds = (this.lastAt - this.firstAt) / 1000;
    const tokens = this.usage ? num(this.usage.completion_tokens) : this.pieces;
    const ours = seconds > kRateFromS ? (tokens - 1) / seconds : 0;
    return {
      ttftMs: this.firstAt ? this.firstAt - this.startedAt : 0,
      tokens,
      tokensPerS: this.timings ? num(this.timings.predicted_per_second) : ours,
      promptTokens: this.usage ? num(this.usage.prompt_tokens) : 0,
      cachedTokens: this.usage && this.usage.prompt_tokens_details
        ? num(this.usage.prompt_tokens_details.cached_tokens) : 0,
    };
  }
}

// What a chat sends: its settings where set, its messages less the broken answers.
export function chatRequest(chat, model) {
  const messages = [];
  if (chat.system.trim()) messages.push({role: 'system', content: chat.system});
  for (const message of chat.messages) {
    if (message.role === 'assistant' && message.phase === 'broken') continue;
    if (message.role === 'assistant' && !message.content) continue;
    messages.push({role: message.role, content: message.content});
  }
  const request = {model, messages, stream: true, stream_options: {include_usage: true},
                   return_progress: true, timings: true};
  for (const {name, read} of kSettings) {
    const value = read(chat.settings[name]);
    if (value !== undefined) request[name] = value;
  }
  return request;
}

function number(text) {
  const value = Number(text);
  return text === undefined || String(text).trim() === '' || !Number.isFinite(value) ? undefined
                                                                                      : value;
}

function whole(text) {
  const value = number(text);
  return value === undefined ? undefined : Math.round(value);
}

// Four stop texts at most, a line each; "\n" may be written in them.
function lines(text) {
  const list = String(text || '').split('\n').filter(Boolean)
    .map((line) => line.replaceAll('\\n', '\n').replaceAll('\\t', '\t')).slice(0, 4);
  return list.length ? list : undefined;
}

// In the order in which they are shown. An empty field is left to the server.
export const kSettings = [
  {name: 'max_tokens', label: 'Longest answer, tokens', hint: 'server', read: whole, min: 1},
  {name: 'temperature', label: 'Temperature', hint: '1', read: number, min: 0, max: 2, step: 0.1},
  {name: 'top_p', label: 'Top p', hint: '1', read: number, min: 0, max: 1, step: 0.05},
  {name: 'top_k', label: 'Top k', hint: 'off', read: whole, min: 0},
  {name: 'min_p', label: 'Min p', hint: 'off', read: number, min: 0, max: 1, step: 0.01},
  {name: 'repetition_penalty', label: 'Repetition penalty', hint: '1', read: number, min: 0.1,
   step: 0.05},
  {name: 'frequency_penalty', label: 'Frequency penalty', hint: '0', read: number, min: -2, max: 2,
   step: 0.1},
  {name: 'presence_penalty', label: 'Presence penalty', hint: '0', read: number, min: -2, max: 2,
   step: 0.1},
  {name: 'seed', label: 'Seed', hint: 'random', read: whole},
  {name: 'stop', label: 'Stop texts, one a line', hint: '', read: lines, text: true},
];
