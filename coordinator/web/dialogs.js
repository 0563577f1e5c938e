// Dialogs that ask, and short words that pass. Native <dialog>s: focus stays inside, Escape leaves.

import {element, h, icon, render} from './dom.js';
import {setKey} from './api.js';

function show(build) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    let answer = null;
    const close = (value) => {
      answer = value;
      dialog.close();
    };
    const dialog = element(h('dialog', {'aria-labelledby': 'dialog-title'}, build(close)));
    dialog.addEventListener('close', () => {
      dialog.remove();
      if (before && before.isConnected) before.focus();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// True: go ahead. `lines` say what will happen; `fields` are extra inputs inside the form whose
// values come back by name instead of true.
export function confirmDialog({title, lines, command, verb, dangerous, fields}) {
  return show((close) => h('form', {
    method: 'dialog',
    onsubmit: (e) => {
      e.preventDefault();
      const values = {};
      for (const input of e.target.querySelectorAll('[name]')) {
        values[input.name] = input.type === 'checkbox' ? input.checked : input.value;
      }
      close(fields ? values : true);
    },
  },
  h('h2', {id: 'dialog-title'}, title),
  h('ul', {class: 'plain'}, lines.map((line, i) => h('li', {key: i}, line))),
  fields || null,
  command ? h('div', {class: 'dialog-command'}, h('span', {class: 'dim'}, 'The same by hand'),
              commandLine(command)) : null,
  h('div', {class: 'buttons'},
    h('button', {type: 'button', onclick: () => close(null)}, 'Keep as it is'),
    h('button', {type: 'submit', class: dangerous ? 'danger' : 'primary'}, verb))));
}

let asking = null;  // The answer to come, while the dialog is open.

// Asks for the key of "admin" or "api". True: one was given. Who asks meanwhile shares the answer.
export function keyDialog(scope) {
  asking = asking || askForKey(scope).finally(() => {
    asking = null;
  });
  return asking;
}

async function askForKey(scope) {
  const admin = scope === 'admin';
  const key = await show((close) => h('form', {
    method: 'dialog',
    onsubmit: (e) => {
      e.preventDefault();
      close(e.target.querySelector('input').value.trim());
    },
  },
  h('h2', {id: 'dialog-title'}, admin ? 'Admin key' : 'API key'),
  h('p', null, admin ? 'This coordinator shows its cluster only to holders of the admin key.'
                     : 'This coordinator answers only to holders of an API key.'),
  h('label', {class: 'field'}, h('span', null, 'Key'),
    h('input', {type: 'password', name: 'key', required: true, autocomplete: 'off',
                spellcheck: 'false'})),
  h('p', {class: 'dim'}, 'Kept in this tab until it closes, and sent to this server only.'),
  h('div', {class: 'buttons'},
    h('button', {type: 'button', onclick: () => close(null)}, 'Not now'),
    h('button', {type: 'submit', class: 'primary'}, 'Use this key'))));
  if (!key) return false;
  setKey(scope, key);
  return true;
}

export function helpDialog(shortcuts, settings) {
  return show((close) => h('div', null,
    h('h2', {id: 'dialog-title'}, 'Keyboard'),
    h('dl', {class: 'keys'}, shortcuts.flatMap(([keys, what]) => [
      h('dt', {key: `${keys}-k`}, keys.split(' ').map((k, i) => h('kbd', {key: i}, k))),
      h('dd', {key: `${keys}-w`}, what)])),
    h('label', {class: 'check'},
      h('input', {type: 'checkbox', checked: settings.on,
                  onchange: (e) => settings.set(e.target.checked)}),
      h('span', null, 'Shortcuts of a single key')),
    h('h2', null, 'Signs'),
    h('ul', {class: 'legend'}, [
      ['ok', 'ready'], ['busy', 'loading'], ['idle', 'spare'], ['warn', 'cordoned'],
      ['warn', 'draining'], ['idle', 'drained'], ['warn', 'stale'], ['bad', 'lost'],
      ['bad', 'failed'],
    ].map(([tone, word]) => h('li', {key: word, class: `tone-${tone}`}, icon(`s-${word}`), ' ',
                              word))),
    h('div', {class: 'buttons'}, h('button', {onclick: () => close(null), class: 'primary'},
                                   'Close'))));
}

// A command to copy.
export function commandLine(command, label) {
  return h('span', {class: 'command'}, h('code', null, command),
           copyButton(() => command, label || `Copy: ${command}`));
}

export function copyButton(textOf, label) {
  return h('button', {
    type: 'button', class: 'quiet small', 'aria-label': label, title: label,
    onclick: async () => notify(await copy(textOf()) ? 'ok' : 'bad'),
  }, icon('copy'));
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return 'ok';
  } catch {
    // Only pages from a secure origin have a clipboard; a selection works everywhere.
  }
  const area = element(h('textarea', {class: 'offscreen', 'aria-hidden': 'true'}));
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  return done;
}

const toasts = [];

// A line that goes away by itself; read out by screen readers.
export function notify(tone, text) {
  const toast = {tone, text: text || (tone === 'ok' ? 'Copied' : 'The browser did not copy')};
  toasts.push(toast);
  if (toasts.length > 4) toasts.shift();
  drawToasts();
  setTimeout(() => {
    const at = toasts.indexOf(toast);
    if (at >= 0) toasts.splice(at, 1);
    drawToasts();
  }, tone === 'bad' ? 12000 : 4000);
}

let nextKey = 0;

function drawToasts() {
  render(document.getElementById('toasts'), toasts.map((toast) => {
    toast.key = toast.key || ++nextKey;
    return h('div', {key: toast.key, class: `toast tone-${toast.tone}`},
             icon({bad: 's-failed', warn: 's-cordoned'}[toast.tone] || 's-ready'), ' ', toast.text);
  }));
}
