// The chat: its state, and the requests it makes. What it looks like is chat_view.js.

import {ApiError, call, open} from './api.js';
import {Answer, chatRequest} from './chat_answer.js';
import {ChatStore} from './chat_store.js';
import {confirmDialog} from './dialogs.js';
import {sseEvents} from './sse.js';
import {local} from './storage.js';

const kSaveEveryMs = 1000;  // While an answer streams.

// A browser that loses a connection throws away what it has not read yet, and that may be the very
// error event: the coordinator still knows what ended the request.
async function lostConnection(served) {
  const error = {message: 'The connection broke while the answer streamed.',
                 code: 'connection_lost'};
  if (!served || !served.requestId) return error;
  try {
    const path = `/admin/v1/requests/${encodeURIComponent(served.requestId)}`;
    const {reason} = await call('GET', path, undefined, {isQuiet: true});
    if (reason) error.code = reason;
  } catch {
    // Without an admin key, or without a coordinator, it stays unknown.
  }
  return error;
}

export class Chat {
  constructor(update) {
    this.update = update;
    this.store = new ChatStore(local);
    this.models = [];          // [{id, max_model_len}…] of /v1/models.
    this.modelsError = null;
    this.running = null;       // {chat, message, abort} of the answer that streams.
    this.draft = '';
    this.editing = -1;         // Index of the user message that `draft` replaces.
    this.waterfalls = new Map();  // Request id to {request} or {error} or {busy}.
    this.savedAt = 0;
    this.pane = '';            // "chats" or "settings" where there is no room for both.
  }

  chat() {
    return this.store.current();
  }

  async loadModels(how) {
    try {
      this.models = (await call('GET', '/v1/models', undefined, how)).data || [];
      this.modelsError = null;
    } catch (error) {
      this.modelsError = error;
    }
    this.update();
  }

  model() {
    const chosen = this.models.find((model) => model.id === this.chat().model);
    return chosen || this.models[0] || null;
  }

  contextTokens() {
    const model = this.model();
    return model ? Number(model.max_model_len) || 0 : 0;
  }

  // Tokens of the conversation as the last whole answer counted them.
  usedTokens() {
    const {messages} = this.chat();
    for (let i = messages.length - 1; i >= 0; --i) {
      const {answer, stats} = messages[i];
      const usage = answer && answer.usage;
      if (usage) return Number(usage.total_tokens) || 0;
      if (stats && stats.promptTokens) return stats.promptTokens + stats.tokens;
    }
    return 0;
  }

  set(fields) {
    Object.assign(this, fields);
    this.update();
  }

  change(fields) {
    Object.assign(this.chat(), fields);
    this.store.save();
    this.update();
  }

  select(id) {
    this.store.currentId = id;
    this.leaveEdit();
    this.set({pane: ''});
    this.store.save();
  }

  create() {
    this.store.add();
    this.leaveEdit();
    this.set({pane: ''});
  }

  async remove(chat) {
    const ok = !chat.messages.length || await confirmDialog({
      title: 'Delete this chat?', verb: 'Delete', dangerous: true,
      lines: [`“${ChatStore.titleOf(chat)}” and its ${chat.messages.length} messages go for ` +
              'good. Export it first to keep a copy.'],
    });
    if (!ok) return;
    if (this.running && this.running.chat === chat) this.stop();
    this.store.remove(chat.id);
    this.update();
  }

  // Sends the draft; in an edit it takes the place of that message and of all after it.
  send() {
    const text = this.draft.trim();
    if (!text || this.running) return;
    const {messages} = this.chat();
    if (this.editing >= 0) messages.splice(this.editing);
    messages.push({role: 'user', content: text});
    this.leaveEdit();
    this.answer();
  }

  edit(index) {
    this.set({editing: index, draft: this.chat().messages[index].content});
  }

  leaveEdit() {
    this.editing = -1;
    this.draft = '';
  }

  // Throws the last answer away and asks for another.
  regenerate() {
    if (this.running) return;
    const {messages} = this.chat();
    while (messages.length && messages[messages.length - 1].role === 'assistant') messages.pop();
    if (messages.length) this.answer();
  }

  stop() {
    if (this.running) this.running.abort.abort();
  }

  async answer() {
    const chat = this.chat();
    const model = this.model();
    const request = chatRequest(chat, model ? model.id : chat.model);
    const answer = new Answer(performance.now());
    const message = {role: 'assistant', content: '', answer};
    const abort = new AbortController();
    chat.messages.push(message);
    this.running = {chat, message, abort};
    this.store.save();
    this.update();
    try {
      await this.stream(request, answer, message, abort.signal);
      answer.end();
    } catch (error) {
      if (abort.signal.aborted) answer.stop();
      else if (error instanceof ApiError) answer.breakOff(error);
      else if (answer.finish) answer.end();
      else answer.breakOff(await lostConnection(answer.served));
    }
    this.keep(message, answer);
    this.running = null;
    this.store.save();
    this.update();
  }

  async stream(request, answer, message, signal) {
    const response = await open('POST', '/v1/chat/completions', {body: request, signal});
    answer.takeHeaders(response.headers);
    for await (const event of sseEvents(response)) {
      const over = answer.take(event.data, performance.now());
      message.content = answer.content;
      this.update();
      if (performance.now() - this.savedAt > kSaveEveryMs) {
        this.savedAt = performance.now();
        this.store.save();
      }
      if (over) return;
    }
  }

  // What is worth keeping of an answer that is over.
  keep(message, answer) {
    Object.assign(message, {
      content: answer.content, phase: answer.phase, finish: answer.finish, error: answer.error,
      served: answer.served, stats: answer.stats(),
    });
    if (answer.reasoning) message.reasoning = answer.reasoning;
  }

  async showWaterfall(requestId) {
    if (this.waterfalls.has(requestId) && !this.waterfalls.get(requestId).error) {
      this.waterfalls.delete(requestId);
      this.update();
      return;
    }
    this.waterfalls.set(requestId, {busy: true});
    this.update();
    try {
      const request = await call('GET', `/admin/v1/requests/${encodeURIComponent(requestId)}`);
      this.waterfalls.set(requestId, {request});
    } catch (error) {
      this.waterfalls.set(requestId, {error});
    }
    this.update();
  }

  export(chat) {
    const url = URL.createObjectURL(
      new Blob([ChatStore.exportOf(chat)], {type: 'application/json'}));
    const link = document.createElement('a');
    link.href = url;
    link.download = `shardline-chat-${chat.id}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
}
