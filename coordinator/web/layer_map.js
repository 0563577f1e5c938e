// Who holds which layers: one row a node, one column a layer. Replicas stand above each other, a
// layer that nobody has leaves a hole that the last row names.

import {h, icon} from './dom.js';
import {bytes, bytesOf, layers, num} from './format.js';
import {gapsOf, shardStatus} from './facts.js';

export function layerMap(model, stages) {
  const total = Math.max(num(model.layers), ...stages.map((stage) => stage.layers.end), 1);
  const rows = stages.flatMap((stage) => stage.shards.map((shard) => ({stage, shard})));
  const gaps = gapsOf(model, stages);
  return h('div', {class: 'map-scroll'}, h('table', {
    class: 'layer-map', 'aria-label': `Layers of ${model.name} by node`},
    h('thead', null, h('tr', null,
      h('th', {scope: 'col'}, 'Node'),
      h('th', {scope: 'col', class: 'map-axis'}, axis(total)),
      h('th', {scope: 'col'}, 'Layers'),
      h('th', {scope: 'col'}, 'Shard'))),
    h('tbody', null,
      rows.map(({stage, shard}) => shardRow(shard, stage, total)),
      gaps.length ? gapRow(gaps, total) : null)));
}

// Every tenth layer or so gets its number.
function axis(total) {
  const step = total <= 12 ? 1 : total <= 40 ? 5 : total <= 100 ? 10 : 20;
  const marks = [];
  for (let i = 0; i < total; i += step) marks.push(i);
  return h('span', {class: 'axis'}, 'Layer', marks.map((i) => h('span', {
    key: i, class: 'axis-mark', style: {left: `${(100 * (i + 0.5)) / total}%`},
  }, String(i))));
}

function track(total, ...boxes) {
  return h('td', {class: 'map-cell'}, h('div', {
    class: total > 100 ? 'track track-fine' : 'track', style: {'--layers': String(total)},
  }, boxes));
}

function place(range, total) {
  return {left: `${(100 * range.begin) / total}%`,
          width: `${(100 * (range.end - range.begin)) / total}%`};
}

function shardRow(shard, stage, total) {
  const now = shardStatus(shard);
  const loading = now.word === 'loading';
  const share = num(shard.bytes) > 0 ? num(shard.bytes_done) / num(shard.bytes) : 0;
  return h('tr', {key: `${shard.node_id}/${stage.layers.begin}`, class: `tone-${now.tone}`},
    h('th', {scope: 'row'}, icon(`s-${now.icon}`), ' ', shard.node_id),
    track(total, h('div', {class: `held is-${now.word}`, style: place(stage.layers, total)},
      loading ? h('div', {class: 'held-done',
                          style: {width: `${Math.min(100, 100 * share).toFixed(1)}%`}}) : null,
      shard.is_head ? h('span', {class: 'held-head'}, 'head') : null)),
    h('td', {class: 'figure'}, layers(stage.layers).replace(/^layers? /, '')),
    h('td', {class: 'map-word'}, now.word,
      h('span', {class: 'dim'},
        loading ? ` ${now.why}, ${bytesOf(shard.bytes_done, shard.bytes)}` :
        now.why ? ` ${now.why}` : ` ${bytes(shard.bytes)}`)));
}

function gapRow(gaps, total) {
  return h('tr', {key: 'gaps', class: 'tone-bad'},
    h('th', {scope: 'row'}, icon('s-failed'), ' nobody'),
    track(total, gaps.map((gap) => h('div', {key: gap.begin, class: 'held is-missing',
                                             style: place(gap, total)}))),
    h('td', {class: 'figure'},
      gaps.map((gap) => layers(gap).replace(/^layers? /, '')).join(', ')),
    h('td', {class: 'map-word'}, 'missing'));
}
