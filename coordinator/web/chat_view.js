// What the chat looks like: the list of chats, the conversation, the composer, the settings.

import {kSettings} from './chat_answer.js';
import {ChatStore} from './chat_store.js';
import {copyButton} from './dialogs.js';
import {h, icon} from './dom.js';
import {count, duration, micros, percent, rate} from './format.js';
import {markdown} from './markdown.js';
import {modelStatus} from './facts.js';
import {waterfall} from './waterfall.js';

export function chatView(app) {
  const {chat} = app;
  const current = chat.chat();
  return h('div', {class: `chat pane-${chat.pane || 'none'}`},
    h('h1', {class: 'hidden'}, 'Chat'),
    sidebar(chat, current),
    h('section', {class: 'talk', 'aria-label': 'Conversation'},
      toolbar(app, current),
      thread(app, current),
      composer(app, current)),
    settings(chat, current));
}

function sidebar(chat, current) {
  return h('nav', {class: 'chats', id: 'chats', 'aria-label': 'Chats'},
    h('button', {class: 'primary wide', onclick: () => chat.create()}, icon('plus'), ' New chat'),
    h('ul', null, chat.store.chats.map((one) => h('li', {key: one.id,
      class: one === current ? 'is-current' : ''},
      h('button', {class: 'quiet title', 'aria-current': one === current ? 'true' : null,
                   onclick: () => chat.select(one.id)}, ChatStore.titleOf(one)),
      h('button', {class: 'quiet small', 'aria-label': `Delete chat ${ChatStore.titleOf(one)}`,
                   onclick: () => chat.remove(one)}, icon('trash'))))),
    chat.store.error ? h('p', {class: 'why tone-bad'}, chat.store.error) : null,
    h('p', {class: 'dim note'}, 'Chats stay in this browser.'));
}

function toolbar(app, current) {
  const {chat} = app;
  const model = chat.model();
  const pane = (name, label, sign) => h('button', {
    class: `quiet toggle-${name}`, 'aria-expanded': String(chat.pane === name),
    'aria-controls': name, onclick: () => chat.set({pane: chat.pane === name ? '' : name}),
  }, icon(sign), h('span', null, label));
  return h('header', {class: 'talk-head'},
    pane('chats', 'Chats', 'list'),
    h('select', {'aria-label': 'Model', class: 'model', value: model ? model.id : '',
                 onchange: (e) => chat.change({model: e.target.value})},
      chat.models.length === 0 ? h('option', {value: ''}, 'no model') : null,
      chat.models.map((m) => h('option', {key: m.id, value: m.id}, m.id))),
    h('span', {class: 'dim context'}, contextMeter(chat)),
    h('button', {class: 'quiet', disabled: !current.messages.length,
                 onclick: () => chat.export(current)}, icon('download'), h('span', null, 'Export')),
    pane('settings', 'Settings', 'sliders'));
}

function contextMeter(chat) {
  const total = chat.contextTokens();
  const used = chat.usedTokens();
  if (!total) return null;
  const share = Math.min(1, used / total);
  return h('span', {class: `context-meter${share > 0.8 ? ' tone-warn' : ''}`, role: 'img',
                    'aria-label': `Context: ${count(used)} of ${count(total)} tokens used`,
                    title: `${percent(used, total)} of the context is used`},
    h('span', {class: 'meter-track'},
      h('span', {class: 'meter-fill', style: {width: `${(100 * share).toFixed(1)}%`}})),
    `${count(used)} / ${count(total)}`, h('span', {class: 'wide-only'}, ' tokens'));
}

function thread(app, current) {
  const {chat} = app;
  const {messages} = current;
  const lastUser = messages.map((m) => m.role).lastIndexOf('user');
  return h('div', {class: 'thread', id: 'thread', role: 'log', 'aria-live': 'polite', tabindex: '0',
                   'aria-busy': String(Boolean(chat.running)), 'aria-label': 'Messages'},
    h('h2', {class: 'hidden'}, 'Messages'),
    messages.length === 0 ? greeting(app) : null,
    messages.map((message, index) => (message.role === 'user'
      ? userMessage(chat, message, index, index === lastUser)
      : answerMessage(app, message, index, index === messages.length - 1))));
}

function greeting(app) {
  const {chat, feed} = app;
  const loading = feed.state && feed.state.models.find((m) => m.state !== 'MODEL_STATE_READY');
  const why = loading ? modelStatus(loading) : null;
  return h('div', {key: 'greeting', class: 'greeting'},
    h('h2', null, chat.model() ? `Talk to ${chat.model().id}` : 'No model takes requests'),
    chat.modelsError ? h('p', {class: 'tone-bad'}, icon('s-failed', 'Error'), ' ',
                         chat.modelsError.message) : null,
    chat.modelsError && [401, 403].includes(chat.modelsError.status)
      ? h('button', {class: 'primary', onclick: () => app.askKey('api')}, 'Enter an API key')
      : null,
    why ? h('p', {class: `tone-${why.tone}`}, icon(`s-${why.icon}`), ' ',
            `${loading.name} is ${why.word}${why.why ? `: ${why.why}` : ''}`) : null,
    chat.model() ? h('p', {class: 'dim'}, 'Enter sends, Shift+Enter begins a new line, ' +
                                          'Escape stops an answer.') : null,
    !chat.model() && !why ? h('p', null, h('a', {href: '#cluster'}, 'See the cluster')) : null);
}

function userMessage(chat, message, index, isLast) {
  return h('article', {key: index, class: `message from-user${chat.editing === index
    ? ' is-edited' : ''}`, 'aria-label': 'You'},
    h('div', {class: 'said'}, message.content),
    h('div', {class: 'message-acts'},
      isLast && !chat.running
        ? h('button', {class: 'quiet small', onclick: () => {
            chat.edit(index);
            document.getElementById('composer').focus();
          }}, icon('edit'), ' Edit') : null,
      copyButton(() => message.content, 'Copy your message')));
}

const trees = new WeakMap();  // Message to the tree of its text, as long as that stays.

function body(message, text) {
  let tree = trees.get(message);
  if (!tree || tree.text !== text) {
    tree = {text, node: h('div', {class: 'markdown'}, markdown(text))};
    trees.set(message, tree);
  }
  return tree.node;
}

// "<think>…</think>" at the start is the model thinking aloud.
export function splitThought(content) {
  if (!content.startsWith('<think>')) return {thought: '', text: content};
  const end = content.indexOf('</think>');
  return end < 0 ? {thought: content.slice(7), text: ''}
                 : {thought: content.slice(7, end), text: content.slice(end + 8).trimStart()};
}

function answerMessage(app, message, index, isLast) {
  const {chat} = app;
  const live = message.answer && !message.answer.isOver() ? message.answer : null;
  const {thought, text} = splitThought(message.content);
  const reasoning = (live ? live.reasoning : message.reasoning) || thought;
  const broken = message.phase === 'broken';
  return h('article', {key: index, class: `message from-model${broken ? ' is-broken' : ''}`,
                       'aria-label': broken ? 'Broken answer' : 'Answer'},
    reasoning.trim() ? h('details', {class: 'thought'}, h('summary', null, 'Thinking'),
                         h('p', null, reasoning)) : null,
    text ? body(message, text) : null,
    live ? liveLine(live) : null,
    broken ? brokenBox(chat, message, isLast) : null,
    message.phase === 'stopped' ? h('p', {class: 'ending dim'}, icon('stop'),
                                    ' You stopped this answer.') : null,
    message.finish === 'length' ? h('p', {class: 'ending tone-warn'}, icon('s-cordoned'),
      ' Ends here because the longest answer, or the context, is reached.') : null,
    live ? null : footer(chat, message, isLast),
    message.served && message.served.requestId
      ? hops(app, chat.waterfalls.get(message.served.requestId)) : null);
}

const kQuietMs = 3000;  // Without news for so long, an answer that streams says so.

// How long nothing has come, in words; '' while it flows.
function quiet(answer) {
  const ms = performance.now() - answer.heardAt;
  return ms > kQuietMs ? `nothing new for ${duration(ms)}` : '';
}

function liveLine(answer) {
  const silence = quiet(answer);
  if (answer.phase === 'writing') {
    const {tokensPerS, ttftMs} = answer.stats();
    const words = tokensPerS ? `${rate(tokensPerS)}, first token after ${micros(1000 * ttftMs)}`
                             : 'Writing';
    return h('p', {class: 'live dim'}, h('span', {class: 'caret', 'aria-hidden': 'true'}),
      silence ? `Waiting for a node to go on: ${silence}` : words);
  }
  const progress = answer.progress;
  if (!progress || !progress.total) {
    return h('p', {class: 'live dim'}, h('span', {class: 'spinner', 'aria-hidden': 'true'}),
             [answer.served ? 'Accepted, waiting for the prompt to be read' : 'Sent', silence]
        .filter(Boolean).join(': '));
  }
  const share = progress.done / progress.total;
  const words = `Reading the prompt: ${count(progress.done)} of ${count(progress.total)} tokens` +
                (progress.cached ? `, ${count(progress.cached)} from the cache` : '') +
                (silence ? `; ${silence}` : '');
  return h('div', {class: 'live dim'},
    h('div', {class: 'progress', role: 'progressbar', 'aria-valuemin': '0', 'aria-valuemax': '100',
              'aria-valuenow': String(Math.floor(100 * share)), 'aria-label': 'Prompt read'},
      h('div', {class: 'meter-fill', style: {width: `${(100 * share).toFixed(1)}%`}})),
    words);
}

function brokenBox(chat, message, isLast) {
  const error = message.error || {};
  const facts = [error.status ? `HTTP ${error.status}` : '', error.code,
                 error.requestId || (message.served && message.served.requestId)].filter(Boolean);
  return h('div', {class: 'broken', role: 'alert'},
    h('p', null, icon('s-failed', 'Error'), ' ', h('b', null, message.content
      ? 'This answer broke off. ' : 'No answer. '), error.message),
    h('p', {class: 'dim'}, facts.join(' · '),
      error.retryAfter ? ` · worth trying again in ${duration(error.retryAfter * 1000)}` : ''),
    isLast ? h('button', {class: 'primary', disabled: Boolean(chat.running),
                          onclick: () => chat.regenerate()}, icon('redo'), ' Try again') : null);
}

function footer(chat, message, isLast) {
  const stats = message.stats || {};
  const served = message.served || {};
  const figures = [
    stats.tokensPerS ? rate(stats.tokensPerS) : '',
    stats.ttftMs ? `first token ${micros(1000 * stats.ttftMs)}` : '',
    stats.tokens ? `${count(stats.tokens)} tokens` : '',
    stats.promptTokens ? `prompt ${count(stats.promptTokens)}` +
      (stats.cachedTokens ? ` (${count(stats.cachedTokens)} cached)` : '') : '',
  ].filter(Boolean);
  return h('div', {class: 'message-acts'},
    figures.length ? h('span', {class: 'dim figures-line'}, figures.join(' · ')) : null,
    served.nodes && served.nodes.length
      ? h('span', {class: 'dim served', title: served.plan ? `plan ${served.plan}` : undefined},
          served.nodes.join(' → ')) : null,
    h('span', {class: 'spring'}),
    served.requestId
      ? h('button', {class: 'quiet small', 'aria-expanded':
            String(chat.waterfalls.has(served.requestId)),
            onclick: () => chat.showWaterfall(served.requestId)}, icon('hops'), ' Hops') : null,
    isLast && message.phase !== 'broken'
      ? h('button', {class: 'quiet small', disabled: Boolean(chat.running),
                     onclick: () => chat.regenerate()}, icon('redo'), ' Regenerate') : null,
    message.content ? copyButton(() => message.content, 'Copy answer') : null);
}

function hops(app, entry) {
  if (!entry) return null;
  if (entry.busy) return h('p', {class: 'dim'}, 'Asking for the timings');
  if (entry.request) return waterfall(entry.request);
  const locked = [401, 403].includes(entry.error.status);
  return h('p', {class: 'tone-warn'}, icon('s-cordoned', 'Warning'), ' ',
    entry.error.status === 404 ? 'The coordinator keeps the last 256 requests; this one is gone.'
                               : entry.error.message, ' ',
    locked ? h('button', {class: 'small', onclick: () => app.askKey('admin')},
               'Enter the admin key') : null);
}

function composer(app, current) {
  const {chat} = app;
  const onkeydown = (e) => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
      e.preventDefault();
      chat.send();
    } else if (e.key === 'Escape' && chat.running) {
      chat.stop();
    } else if (e.key === 'Escape' && chat.editing >= 0) {
      chat.leaveEdit();
      chat.update();
    } else if (e.key === 'ArrowUp' && !chat.draft && !chat.running) {
      const last = current.messages.map((m) => m.role).lastIndexOf('user');
      if (last >= 0) {
        e.preventDefault();
        chat.edit(last);
      }
    }
  };
  return h('form', {class: 'composer', onsubmit: (e) => {
    e.preventDefault();
    chat.send();
  }},
  chat.editing >= 0 ? h('p', {class: 'dim edit-note'},
    'You are editing your last message; what came after it is replaced.', ' ',
    h('button', {type: 'button', class: 'quiet small', onclick: () => {
      chat.leaveEdit();
      chat.update();
    }}, 'Leave it')) : null,
  h('textarea', {id: 'composer', rows: '3', 'aria-label': 'Your message', value: chat.draft,
                 placeholder: chat.model() ? `Message ${chat.model().id}` : 'Your message',
                 oninput: (e) => chat.set({draft: e.target.value}), onkeydown}),
  chat.running
    ? h('button', {key: 'stop', type: 'button', class: 'danger', onclick: () => chat.stop()},
        icon('stop'), ' Stop')
    : h('button', {key: 'send', type: 'submit', class: 'primary', disabled: !chat.draft.trim()},
        icon('send'), ' Send'));
}

function settings(chat, current) {
  const set = (name) => (e) => chat.change(
    {settings: {...current.settings, [name]: e.target.value}});
  const changed = Object.values(current.settings).filter((v) => String(v).trim()).length;
  return h('aside', {class: 'settings', id: 'settings', 'aria-label': 'Settings of this chat'},
    h('h2', null, 'Settings'),
    h('label', {class: 'field'}, h('span', null, 'System prompt'),
      h('textarea', {rows: '4', value: current.system, placeholder: 'None',
                     oninput: (e) => chat.change({system: e.target.value})})),
    kSettings.map((setting) => h('label', {key: setting.name, class: setting.text
      ? 'field' : 'field row'},
      h('span', null, setting.label),
      setting.text
        ? h('textarea', {rows: '2', value: current.settings[setting.name] || '',
                         oninput: set(setting.name)})
        : h('input', {type: 'number', min: setting.min, max: setting.max,
                      step: String(setting.step || 1), placeholder: setting.hint,
                      value: current.settings[setting.name] || '', oninput: set(setting.name)}))),
    h('button', {class: 'quiet', disabled: !changed, onclick: () => chat.change({settings: {}})},
      'Back to the server’s defaults'));
}
