// The page: which view is shown, the bar above it, banners, keys, theme and shortcuts.

import {keyOf, whenKeyIsNeeded} from './api.js';
import {Chat} from './chat.js';
import {chatView} from './chat_view.js';
import {clusterView} from './cluster.js';
import {connectView} from './connect.js';
import {helpDialog, keyDialog} from './dialogs.js';
import {h, icon, render} from './dom.js';
import {clusterStatus} from './facts.js';
import {Feed} from './feed.js';
import {clockTime, duration} from './format.js';
import {local} from './storage.js';

const kViews = {
  cluster: {title: 'Cluster', view: clusterView},
  chat: {title: 'Chat', view: chatView},
  connect: {title: 'Connect', view: connectView},
};
const kThemes = ['auto', 'light', 'dark'];
const kFreshMs = 4000;

const app = {
  view: 'cluster',
  picked: '',            // The node that the address names.
  ringWidth: 900,
  timelineFilter: {level: 'info', text: ''},
  placement: {model: '', path: '', shards: '', replicas: '', context: '', sessions: '',
              busy: false, answer: null, error: null},
  refusedKeys: new Set(),  // Scopes for which a person said "not now".
  singleKeys: local.getItem('shardline.keys') !== 'off',
  fault: null,

  setFilter(fields) {
    Object.assign(app.timelineFilter, fields);
    update();
  },
  setPlacement(fields) {
    if (fields.path !== undefined || fields.model !== undefined) fields.answer = null;
    Object.assign(app.placement, fields);
    update();
  },
  measureRing(el) {
    ringObserver.observe(el);
  },
  // The address does the rest, unless it names that node already.
  pickNode(name) {
    if (app.picked === name) showPicked();
  },
  async askKey(scope) {
    app.refusedKeys.delete(scope);
    if (!await keyDialog(scope)) app.refusedKeys.add(scope);
    app.feed.retry();
    app.loadModels();
  },
  // Only who opens the chat is asked for a key to it.
  loadModels() {
    app.chat.loadModels({isQuiet: app.view !== 'chat'});
  },
  hasKeys() {
    return Boolean(keyOf('api'));
  },
  grpcIsGuessed() {
    return !(app.feed.state && app.feed.state.listen);
  },
  grpcAddress() {
    return app.grpcIsGuessed() ? `${location.hostname || 'HOST'}:7070` : app.feed.state.listen;
  },
};
app.feed = new Feed(onFeed);
app.chat = new Chat(update);

const ringObserver = new ResizeObserver((entries) => {
  const width = Math.floor(entries[entries.length - 1].contentRect.width);
  if (width > 0 && width !== app.ringWidth) {
    app.ringWidth = width;
    update();
  }
});

let drawing = 0;

// Draws once a frame, however often it is asked to.
function update() {
  if (!drawing) drawing = requestAnimationFrame(draw);
}

function draw() {
  drawing = 0;
  try {
    const thread = document.getElementById('thread');
    const follows = !thread || thread.scrollHeight - thread.scrollTop - thread.clientHeight < 60;
    render(document.getElementById('top'), topBar());
    render(document.getElementById('banner'), banner());
    const main = document.getElementById('main');
    main.dataset.view = app.view;
    render(main, h('div', {key: app.view, class: `view view-${app.view}`},
                   kViews[app.view].view(app)));
    document.title = titleNow();
    const now = document.getElementById('thread');
    if (now && follows) now.scrollTop = now.scrollHeight;
  } catch (error) {
    showFault(error);
  }
}

function titleNow() {
  const {state, link} = app.feed;
  const word = !state ? '' : link === 'lost' ? 'connection lost' : clusterStatus(state).word;
  return [kViews[app.view].title, word && word.toLowerCase(), 'Shardline'].filter(Boolean)
    .join(' · ');
}

function topBar() {
  const theme = document.documentElement.dataset.theme;
  return [
    h('a', {class: 'brand', href: '#cluster'}, icon('mark'), h('span', null, 'Shardline')),
    h('nav', {'aria-label': 'Views'}, Object.entries(kViews).map(([name, {title}]) => h('a', {
      key: name, href: `#${name}`, 'aria-current': app.view === name ? 'page' : null}, title))),
    h('span', {class: 'spring'}),
    health(),
    h('button', {class: 'quiet', 'aria-label': `Theme: ${theme}. Change it`,
                 title: `Theme: ${theme}`, onclick: nextTheme},
      icon(theme === 'light' ? 'sun' : theme === 'dark' ? 'moon' : 'half')),
    h('button', {class: 'quiet', 'aria-label': 'Keyboard shortcuts and signs', title: 'Help (?)',
                 onclick: showHelp}, icon('help')),
  ];
}

// Health, and how fresh that knowledge is.
function health() {
  const {state, link} = app.feed;
  const age = app.feed.ageMs();
  const fresh = link === 'live' ? (age < kFreshMs ? 'live' : `${duration(age)} old`)
    : link === 'polling' ? 'polling' : link === 'locked' ? 'locked'
    : link === 'connecting' ? 'connecting' : state ? `lost, ${duration(age)} old` : 'lost';
  const now = state ? clusterStatus(state) : {tone: 'idle', word: 'Unknown', icon: 'stale'};
  const known = link === 'live' || link === 'polling';
  return h('a', {class: `health tone-${known ? now.tone : 'idle'}`, href: '#cluster'},
    icon(`s-${known ? now.icon : 'stale'}`), ' ', h('b', null, now.word), ' ',
    h('span', {class: known ? 'dim' : 'tone-bad'}, fresh));
}

function banner() {
  const {state, link, error} = app.feed;
  const out = [];
  if (app.fault) {
    out.push(h('div', {key: 'fault', class: 'banner tone-bad'}, icon('s-failed', 'Error'),
      h('span', null, `The page has a fault: ${app.fault}`),
      h('button', {class: 'small', onclick: () => location.reload()}, 'Reload')));
  }
  if (state && (link === 'lost' || link === 'locked') && app.feed.ageMs() > 1500) {
    out.push(h('div', {key: 'lost', class: 'banner tone-bad'}, icon('s-lost', 'Error'),
      h('span', null, h('b', null, link === 'locked' ? 'The key is refused. '
                                                    : 'Connection to the coordinator lost. '),
        `What you see is from ${clockTime(app.feed.receivedAt)}, ` +
        `${duration(app.feed.ageMs())} ago. ${error ? error.message : ''}`),
      link === 'locked' ? h('button', {class: 'small', onclick: () => app.askKey('admin')},
                            'Enter the key')
                        : h('button', {class: 'small', onclick: () => app.feed.retry()},
                            'Try now')));
  }
  return out;
}

function nextTheme() {
  const root = document.documentElement;
  const next = kThemes[(kThemes.indexOf(root.dataset.theme) + 1) % kThemes.length];
  root.dataset.theme = next;
  local.setItem('shardline.theme', next);
  update();
}

const kShortcuts = [
  ['1', 'Cluster'], ['2', 'Chat'], ['3', 'Connect'], ['/', 'Search events, or write a message'],
  ['n', 'New chat'], ['r', 'Try a lost connection again'], ['t', 'Theme: auto, light, dark'],
  ['?', 'This list'], ['Enter', 'Send the message'], ['Shift Enter', 'New line in the message'],
  ['↑', 'Edit the last message, from an empty one'], ['Esc', 'Stop the answer, leave a dialog'],
];

function showHelp() {
  helpDialog(kShortcuts, {
    on: app.singleKeys,
    set(on) {
      app.singleKeys = on;
      local.setItem('shardline.keys', on ? 'on' : 'off');
    },
  });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog')) return;
  const typing = event.target.closest('input, textarea, select');
  if (event.key === 'Escape' && app.chat.running) app.chat.stop();
  if (typing || !app.singleKeys) return;
  const go = {
    '1': () => { location.hash = '#cluster'; }, '2': () => { location.hash = '#chat'; },
    '3': () => { location.hash = '#connect'; }, 't': nextTheme, '?': showHelp,
    'r': () => app.feed.retry(),
    'n': () => {
      app.chat.create();
      location.hash = '#chat';
      focusSoon('composer');
    },
    '/': () => focusSoon(app.view === 'chat' ? 'composer' : 'event-filter'),
  }[event.key];
  if (!go) return;
  event.preventDefault();
  go();
}

function focusSoon(id) {
  update();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const el = document.getElementById(id);
    if (el) el.focus();
  }));
}

// "#cluster/node-1": the view, and what of it.
function onRoute() {
  const [view, what] = location.hash.replace(/^#/, '').split('/');
  const place = view === 'place' && document.getElementById('place');
  if (place) {
    place.scrollIntoView();
    place.querySelector('select').focus({preventScroll: true});
    return;
  }
  app.view = kViews[view] ? view : 'cluster';
  try {
    app.picked = what ? decodeURIComponent(what) : '';
  } catch {
    app.picked = '';
  }
  if (app.view !== 'cluster') app.loadModels();
  if (app.view === 'chat') focusSoon('composer');
  update();
  if (app.picked) requestAnimationFrame(() => requestAnimationFrame(showPicked));
}

function showPicked() {
  const row = document.getElementById(`node-${app.picked}`);
  if (!row) return;
  row.scrollIntoView({block: 'center'});
  row.focus({preventScroll: true});
}

let readyModels = '';

// A model that became ready, or went, changes what the chat can talk to.
function onFeed() {
  const {state} = app.feed;
  const ready = state ? state.models.filter((m) => m.state === 'MODEL_STATE_READY')
    .map((m) => m.name).join('\n') : '';
  if (ready !== readyModels) {
    readyModels = ready;
    if (app.view !== 'cluster') app.loadModels();
  }
  update();
}

function showFault(error) {
  app.fault = error && error.message ? error.message : String(error);
  console.error(error);
  render(document.getElementById('banner'), banner());
}

whenKeyIsNeeded((scope) => {
  if (!app.refusedKeys.has(scope)) app.askKey(scope);
});
window.addEventListener('error', (e) => showFault(e.error || e.message));
window.addEventListener('unhandledrejection', (e) => showFault(e.reason));
window.addEventListener('hashchange', onRoute);
window.addEventListener('online', () => app.feed.retry());
window.addEventListener('pagehide', () => app.chat.store.save());
document.addEventListener('keydown', onKey);
document.getElementById('skip').addEventListener('click', (e) => {
  e.preventDefault();
  document.getElementById('main').focus();
});
// Ages tick even when no news come.
setInterval(() => {
  if (!document.hidden) update();
}, 1000);
onRoute();
app.feed.start();
