// "Would it fit?" before anything is loaded: the form, and the answer in numbers.

import {loadModel} from './actions.js';
import {call} from './api.js';
import {h, icon} from './dom.js';
import {bytes, layers, num, plural} from './format.js';

// The form's fields as the API takes them; null: nothing to ask about.
export function placementRequest(fields) {
  const whole = (text) => Math.max(0, Math.floor(Number(text) || 0));
  const request = {
    shards: whole(fields.shards), replicas: whole(fields.replicas),
    context_tokens_max: whole(fields.context), sessions_max: whole(fields.sessions),
  };
  const source = fields.path.trim();
  if (fields.model) request.model = fields.model;
  else if (source) request.path = source;
  else return null;
  return request;
}

export function placementPanel(app, state) {
  const form = app.placement;
  const set = (name) => (e) => app.setPlacement({[name]: e.target.value});
  const number = (name, label, hint) => h('label', {class: 'field narrow'}, h('span', null, label),
    h('input', {type: 'number', min: '0', inputmode: 'numeric', placeholder: hint,
                value: form[name], oninput: set(name)}));
  const ask = async (e) => {
    if (e) e.preventDefault();
    const request = placementRequest(form);
    if (!request) return;
    app.setPlacement({busy: true, error: null});
    try {
      app.setPlacement({busy: false, answer: await call('POST', '/admin/v1/placement', request)});
    } catch (error) {
      app.setPlacement({busy: false, answer: null, error: error.message});
    }
  };
  const load = async () => {
    const request = placementRequest({...form, model: ''});
    if (request && await loadModel(request, form.answer)) {
      app.setPlacement({answer: null, path: ''});
    }
  };
  return h('section', {class: 'panel', id: 'place', 'aria-labelledby': 'place-title'},
    h('header', {class: 'panel-head'}, h('h2', {id: 'place-title'}, 'Place a model'),
      h('span', {class: 'dim'}, 'The preview changes nothing')),
    h('form', {class: 'place-form', onsubmit: ask},
      h('label', {class: 'field'}, h('span', null, 'Model'),
        h('select', {value: form.model, onchange: set('model')},
          h('option', {value: ''}, 'A file on the coordinator'),
          state.models.map((m) => h('option', {key: m.name, value: m.name}, m.name)))),
      h('label', {class: 'field wide'}, h('span', null, 'Path'),
        h('input', {type: 'text', placeholder: '/models/model.gguf', spellcheck: 'false',
                    value: form.path, disabled: Boolean(form.model), oninput: set('path')})),
      number('shards', 'Shards', 'fewest'), number('replicas', 'Replicas', '1'),
      number('context', 'Context', 'most'), number('sessions', 'Sessions', '4'),
      h('div', {class: 'buttons'},
        h('button', {type: 'submit', class: 'primary',
                     disabled: Boolean(form.busy) || !placementRequest(form)},
          form.busy ? 'Asking…' : 'Preview'),
        h('button', {type: 'button', disabled: Boolean(form.model) || !form.path.trim(),
                     title: form.model ? `${form.model} is in service already` : undefined,
                     onclick: load}, 'Load…'))),
    h('div', {'aria-live': 'polite'},
      form.error ? h('p', {class: 'why tone-bad'}, icon('s-failed', 'Error'), ' ', form.error)
                 : null,
      form.answer ? preview(form.answer) : null));
}

function preview(answer) {
  const shards = answer.shards || [];
  return h('div', {class: `preview tone-${answer.fits ? 'ok' : 'bad'}`},
    h('h3', null, icon(answer.fits ? 's-ready' : 's-failed'), ' ',
      answer.fits ? `Fits on ${plural(shards.length, 'node')}` : 'Does not fit'),
    answer.reason ? h('pre', {class: 'why'}, answer.reason) : null,
    shards.length ? h('table', {class: 'list', 'aria-label': 'Shards as they would be placed'},
      h('thead', null, h('tr', null,
        ['Node', 'Layers', 'Weights', 'KV pages', 'Memory free'].map((title, i) => h('th', {
          key: i, scope: 'col', class: i > 1 ? 'num' : ''}, title)))),
      h('tbody', null, shards.map((s) => h('tr', {key: `${s.node_id}/${num(s.layers.begin)}`},
        h('th', {scope: 'row', 'data-name': 'Node'}, s.node_id,
          s.is_head ? h('span', {class: 'tag'}, 'head') : null),
        h('td', {'data-name': 'Layers'}, layers(s.layers).replace(/^layers? /, '')),
        h('td', {class: 'num', 'data-name': 'Weights'}, bytes(s.bytes)),
        h('td', {class: 'num', 'data-name': 'KV pages'}, String(num(s.kv_pages))),
        h('td', {class: 'num', 'data-name': 'Memory free'}, bytes(s.memory_free_bytes)))))) : null);
}
