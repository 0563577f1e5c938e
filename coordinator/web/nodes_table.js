// The list of nodes: state, load, and the buttons that change what a node is asked to do.

import {cordonNode, drainNode, removeNode, uncordonNode} from './actions.js';
import {notify} from './dialogs.js';
import {h, icon} from './dom.js';
import {bytesOf, count, duration, layers, num, percent, plural} from './format.js';
import {nodeActions, nodeStatus, shardsOf} from './facts.js';

export function nodesPanel(app, state) {
  return h('section', {class: 'panel', 'aria-labelledby': 'nodes-title'},
    h('header', {class: 'panel-head'}, h('h2', {id: 'nodes-title'}, 'Nodes'),
      h('span', {class: 'dim'}, plural(state.nodes.length, 'node')),
      h('a', {class: 'more', href: '#connect'}, 'Add a node')),
    state.nodes.length === 0
      ? h('p', {class: 'dim none'}, 'None has joined.')
      : h('table', {class: 'list nodes', 'aria-label': 'Nodes of this cluster'},
          h('thead', null, h('tr', null,
            [['Node'], ['State'], ['Layers'], ['Memory'], ['KV pages'], ['Sessions', 'num'],
             ['Last beat', 'num'], ['']].map(([title, kind], i) => h('th', {
              key: i, scope: 'col', class: kind || ''},
              title || h('span', {class: 'hidden'}, 'Actions'))))),
          h('tbody', null, state.nodes.map((node) => nodeRow(app, node, state)))));
}

function nodeRow(app, node, state) {
  const now = nodeStatus(node, state);
  const lost = now.word === 'lost';
  const capacity = node.capacity || {};
  const kvTotal = num(node.kv_pages_total);
  const kvUsed = kvTotal - num(node.kv_pages_free);
  const ranges = shardsOf(state, node.node_id);
  return h('tr', {
    key: node.node_id, id: `node-${node.node_id}`, tabindex: '-1',
    class: `tone-${now.tone}${app.picked === node.node_id ? ' is-picked' : ''}`,
  },
  h('th', {scope: 'row', 'data-name': 'Node'}, node.node_id,
    h('div', {class: 'dim sub'}, node.address),
    h('div', {class: 'dim sub'}, [capacity.device, node.version].filter(Boolean).join(' · '))),
  h('td', {'data-name': 'State'},
    h('span', {class: 'state'}, icon(`s-${now.icon}`), ' ', now.word),
    now.why ? h('div', {class: 'dim sub'}, now.why) : null),
  h('td', {class: 'ranges', 'data-name': 'Layers'},
    ranges.length
      ? ranges.map((s) => h('div', {key: s.model + s.layers.begin},
          layers(s.layers).replace(/^layers? /, ''), s.is_head ? h('span', {class: 'tag'}, 'head')
                                                              : null))
      : h('span', {class: 'dim'}, 'none')),
  h('td', {'data-name': 'Memory'}, lost ? h('span', {class: 'dim'}, 'unknown')
    : meter(num(node.memory_used_bytes), num(capacity.memory_bytes),
            bytesOf(node.memory_used_bytes, capacity.memory_bytes))),
  h('td', {'data-name': 'KV pages'}, lost || !kvTotal
    ? h('span', {class: 'dim'}, lost ? 'unknown' : 'none')
    : meter(kvUsed, kvTotal, `${count(kvUsed)} of ${count(kvTotal)}`)),
  h('td', {class: 'num', 'data-name': 'Sessions'}, count(node.sessions_running)),
  h('td', {class: 'num', 'data-name': 'Last beat'}, duration(node.last_beat_ms)),
  h('td', {class: 'acts'}, buttons(node, state)));
}

function meter(used, total, words) {
  const share = total > 0 ? Math.min(1, used / total) : 0;
  return h('div', {class: `meter${share > 0.95 ? ' is-full' : ''}`, title: percent(used, total)},
    h('div', {class: 'meter-track'},
      h('div', {class: 'meter-fill', style: {width: `${(100 * share).toFixed(1)}%`}})),
    h('span', null, words));
}

function buttons(node, state) {
  const may = nodeActions(node, state);
  // A button that must not act stays in reach of the keyboard, so that it can say why.
  const act = (verb, why, run) => h('button', {
    key: verb, class: 'small', 'aria-disabled': why ? 'true' : null, title: why || undefined,
    'aria-label': why ? `${verb} ${node.node_id}: not now, ${why}` : `${verb} ${node.node_id}`,
    onclick: why ? () => notify('warn', `${why}.`) : run,
  }, verb);
  if (node.state === 'NODE_STATE_LOST') {
    return [act('Forget…', may.remove, () => removeNode(node, state))];
  }
  return [
    may.uncordon ? act('Cordon…', may.cordon, () => cordonNode(node))
                 : act('Uncordon', may.uncordon, () => uncordonNode(node)),
    act('Drain…', may.drain, () => drainNode(node, state)),
    act('Forget…', may.remove, () => removeNode(node, state)),
  ];
}

