// The cluster view: what is wrong, the ring, the layers, and the lists that operators act on.

import {cancelSession, unloadModel} from './actions.js';
import {commandLine} from './dialogs.js';
import {h, icon} from './dom.js';
import {clockTime, count, duration, bytes, layers, num, percent, plural, rate} from './format.js';
import {modelStatus, problemsOf, spareNodes, stagesOf} from './facts.js';
import {layerMap} from './layer_map.js';
import {nodesPanel} from './nodes_table.js';
import {placementPanel} from './placement.js';
import {timelinePanel} from './timeline.js';
import {drawRing} from './topology.js';

export function clusterView(app) {
  const {state} = app.feed;
  if (!state) return waiting(app);
  const stale = app.feed.link !== 'live' && app.feed.link !== 'polling';
  return h('div', {class: stale ? 'cluster is-old' : 'cluster'},
    h('h1', {class: 'hidden'}, 'Cluster'),
    figures(app, state),
    problems(app, state),
    h('div', {class: 'cluster-main'},
      h('div', {class: 'cluster-picture'},
        state.models.length === 0 ? noModel(state) : null,
        state.models.map((model) => modelPanel(app, state, model)),
        spares(state),
        nodesPanel(app, state),
        sessionsPanel(app, state)),
      timelinePanel(app)),
    placementPanel(app, state));
}

function waiting(app) {
  const {link, error} = app.feed;
  return h('section', {class: 'panel empty'},
    h('h1', null, link === 'locked' ? 'The admin key is needed'
                  : error ? 'No state yet' : 'Asking the coordinator'),
    h('p', null, error ? error.message : 'The first snapshot is on its way.'),
    link === 'locked'
      ? h('button', {class: 'primary', onclick: () => app.askKey('admin')}, 'Enter the key')
      : null,
    error && link !== 'locked'
      ? h('div', null,
          h('p', null, 'The page tries again by itself. The same state in a terminal:'),
          h('p', null, commandLine(`curl ${location.origin}/status.txt`)),
          h('button', {onclick: () => app.feed.retry()}, 'Try now'))
      : null);
}

function figure(name, value, detail, tone) {
  return h('div', {key: name, class: `figure-box${tone ? ` tone-${tone}` : ''}`},
    h('dt', null, name), h('dd', null, h('b', null, value), h('span', {class: 'dim'}, detail)));
}

function figures(app, state) {
  const {cluster} = state;
  const alive = state.nodes.filter((n) => n.state !== 'NODE_STATE_LOST');
  const sum = (of) => alive.reduce((total, node) => total + num(of(node)), 0);
  const total = sum((n) => n.kv_pages_total);
  const used = total - sum((n) => n.kv_pages_free);
  const memoryUsed = sum((n) => n.memory_used_bytes);
  const memoryAll = sum((n) => (n.capacity || {}).memory_bytes);
  const ready = state.models.filter((m) => m.state === 'MODEL_STATE_READY').length;
  return h('dl', {class: 'figures'},
    figure('Nodes', `${alive.length} of ${state.nodes.length}`, 'live',
           alive.length === state.nodes.length ? '' : cluster.healthy ? 'warn' : 'bad'),
    figure('Models', `${ready} of ${state.models.length}`, 'ready',
           ready && ready === state.models.length ? ''
             : state.models.some((m) => m.state === 'MODEL_STATE_LOADING') ? 'busy' : 'bad'),
    figure('Sessions', count(state.figures.sessions_running),
           `running, ${count(state.figures.sessions_waiting)} waiting`),
    figure('Throughput', rate(state.figures.tokens_per_s), 'last 5 s'),
    figure('KV pages', percent(used, total), `${count(used)} of ${count(total)}`),
    figure('Memory', bytes(memoryUsed), `of ${bytes(memoryAll)}`),
    figure('Requests', count(state.figures.requests_total), 'so far'),
    figure('Plan', count(cluster.plan_epoch), `term ${count(state.term)}`));
}

function problems(app, state) {
  const list = problemsOf(state, app.feed.timeline, app.grpcAddress());
  if (!list.length) return null;
  const now = app.feed.now();
  return h('section', {class: 'problems', 'aria-label': 'Problems'},
    list.map((problem) => h('article', {key: problem.key, class: `problem tone-${problem.tone}`},
      h('h2', null, icon(problem.tone === 'bad' ? 's-failed' : 's-cordoned',
                         problem.tone === 'bad' ? 'Error' : 'Warning'), ' ', problem.what,
        problem.sinceMs ? h('span', {class: 'dim since'},
          `since ${clockTime(problem.sinceMs)}, ${duration(now - problem.sinceMs)}`) : null),
      problem.why ? h('p', {class: 'why'}, problem.why) : null,
      problem.hint ? h('p', {class: 'dim'}, problem.hint) : null,
      h('p', {class: 'helps'}, h('span', {class: 'dim'}, 'Helps'),
        commandLine(problem.command)))));
}

function noModel(state) {
  return h('section', {class: 'panel empty'},
    h('h2', null, state.nodes.length ? 'No model is loaded' : 'No node has joined yet'),
    state.nodes.length
      ? h('p', null, `Room for one: ${plural(state.nodes.length, 'node')}. `,
          h('a', {href: '#place'}, 'Place a model'))
      : h('p', null, 'Start shardline-node on each machine. ',
          h('a', {href: '#connect'}, 'The command to paste')));
}

function modelPanel(app, state, model) {
  const now = modelStatus(model);
  const stages = stagesOf(state, model.name);
  return h('section', {key: model.name, class: 'panel', 'aria-label': `Model ${model.name}`},
    h('header', {class: 'panel-head'},
      h('h2', null, model.name),
      h('span', {class: `state tone-${now.tone}`}, icon(`s-${now.icon}`), ' ', now.word),
      h('span', {class: 'dim facts'},
        [model.architecture, model.quantisation, bytes(model.bytes),
         `${count(model.layers)} layers`,
         num(model.context_tokens_max) ? `context ${count(model.context_tokens_max)}` : '',
         num(model.plan_epoch) ? `plan ${model.plan_epoch}` : ''].filter(Boolean).join(' · ')),
      h('button', {class: 'small', onclick: () => unloadModel(model, state)}, 'Unload…')),
    now.tone !== 'ok' && model.reason && now.tone !== 'bad'
      ? h('p', {class: 'why'}, model.reason) : null,
    stages.length ? h('div', {class: 'ring-box', ref: app.measureRing},
                      drawRing(state, model, stages, app.ringWidth, app.pickNode)) : null,
    stages.length ? layerMap(model, stages) : null);
}

function spares(state) {
  const list = spareNodes(state).filter((n) => n.state !== 'NODE_STATE_LOST');
  if (!list.length || !state.models.length) return null;
  return h('p', {class: 'spares tone-idle'}, icon('s-spare'), ' Spare: ',
    list.map((node, i) => h('a', {key: node.node_id,
      href: `#cluster/${encodeURIComponent(node.node_id)}`},
      node.node_id, i + 1 < list.length ? ', ' : '')),
    h('span', {class: 'dim'}, list.length === 1
      ? ' holds no layers and takes over when another is lost'
      : ' hold no layers and take over when another is lost'));
}

function sessionsPanel(app, state) {
  const several = state.models.length > 1;
  return h('section', {class: 'panel', 'aria-labelledby': 'sessions-title'},
    h('header', {class: 'panel-head'}, h('h2', {id: 'sessions-title'}, 'Sessions'),
      h('span', {class: 'dim'}, plural(state.sessions.length, 'session'))),
    state.sessions.length === 0
      ? h('p', {class: 'dim none'}, 'Nothing is being generated.')
      : h('table', {class: 'list', 'aria-label': 'Sessions that have not ended'},
          h('thead', null, h('tr', null,
            [['Session'], ['Phase'], several ? ['Model'] : null, ['Tokens', 'num'],
             ['Attempts', 'num'], ['Age', 'num'], ['Left', 'num'], ['Route'], ['']]
              .filter(Boolean).map(([title, kind]) => h('th', {
                key: title, scope: 'col', class: kind || ''},
                title || h('span', {class: 'hidden'}, 'Actions'))))),
          h('tbody', null, state.sessions.map((s) => sessionRow(s, several)))));
}

function sessionRow(s, several) {
  const restarted = num(s.attempts) > 1;
  return h('tr', {key: s.session},
    h('th', {scope: 'row', 'data-name': 'Session'}, s.session,
      h('span', {class: 'dim'}, ` epoch ${s.epoch}`)),
    h('td', {'data-name': 'Phase'}, s.phase),
    several ? h('td', {'data-name': 'Model'}, s.model) : null,
    h('td', {class: 'num', 'data-name': 'Tokens'}, count(s.tokens),
      h('span', {class: 'dim'}, ` after ${count(s.prompt_tokens)}`)),
    h('td', {class: restarted ? 'num tone-warn' : 'num', 'data-name': 'Attempts'},
      count(s.attempts)),
    h('td', {class: 'num', 'data-name': 'Age'}, duration(s.age_ms)),
    h('td', {class: 'num', 'data-name': 'Left'}, duration(s.budget_ms)),
    h('td', {'data-name': 'Route'},
      (s.route || []).map((hop) => hop.node_id).join(' → ') ||
        h('span', {class: 'dim'}, 'none yet')),
    h('td', {class: 'acts'},
      h('button', {class: 'small', 'aria-label': `Cancel session ${s.session}`,
                   onclick: () => cancelSession(s)}, 'Cancel…')));
}
