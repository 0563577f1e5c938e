// The ring of a model as a picture: stages in order, replicas stacked, links with their direction.
// layoutRing() is pure; drawRing() makes SVG of it.

import {h} from './dom.js';
import {duration, layers} from './format.js';
import {busyLinks, linkSilence, nodeStatus} from './facts.js';

const kCard = {widthMin: 148, widthMax: 200, height: 54};
const kGap = {xMin: 56, xMax: 120, y: 34, stack: 10};
const kMargin = {x: 12, top: 14, bottom: 32};

// Stages run left to right, then wrap and run back, so that no link crosses the picture. Returns
// {width, height, card, gap, perRow, stages: [{x, y, height, row, forward, cards: [{x, y}]}]}.
export function layoutRing(stackSizes, width) {
  const room = width - 2 * kMargin.x;
  const fit = Math.floor((room + kGap.xMin) / (kCard.widthMin + kGap.xMin));
  const perRow = Math.max(1, Math.min(stackSizes.length, fit));
  // What is left over makes cards and links longer, up to what looks calm.
  const spare = (room - perRow * (kCard.widthMin + kGap.xMin) + kGap.xMin) / perRow;
  const card = Math.min(kCard.widthMax, kCard.widthMin + Math.max(0, Math.floor(spare / 2)));
  const gap = Math.min(kGap.xMax, kGap.xMin + Math.max(0, Math.floor(spare / 2)));
  const left = Math.max(kMargin.x, (width - perRow * (card + gap) + gap) / 2);
  const stages = [];
  let y = kMargin.top;
  for (let begin = 0; begin < stackSizes.length; begin += perRow) {
    const row = begin / perRow;
    const sizes = stackSizes.slice(begin, begin + perRow);
    const rowHeight = stackHeight(Math.max(...sizes));
    sizes.forEach((size, i) => {
      const column = row % 2 === 0 ? i : perRow - 1 - i;
      const x = left + column * (card + gap);
      const height = stackHeight(size);
      const top = y + (rowHeight - height) / 2;
      const cards = Array.from({length: size}, (_, k) => (
        {x, y: top + k * (kCard.height + kGap.stack)}));
      stages.push({x, y: top, height, row, forward: row % 2 === 0, cards});
    });
    y += rowHeight + kGap.y;
  }
  return {width, height: y - kGap.y + kMargin.bottom, card, gap, perRow, stages};
}

function stackHeight(size) {
  return size * (kCard.height + kGap.stack) - kGap.stack;
}

export function drawRing(state, model, stages, width, onPick) {
  const layout = layoutRing(stages.map((stage) => stage.shards.length), width);
  const busy = busyLinks(state, model.name);
  const links = [];
  const cards = [];
  stages.forEach((stage, i) => {
    const next = (i + 1) % stages.length;
    if (next > i) links.push(...drawLinks(state, stages, layout, i, next, busy));
    else if (next < i) links.push(...drawWayHome(state, stages, layout, busy));
    stage.shards.forEach((shard, k) => {
      cards.push(drawCard(state, stage, shard, layout.card, layout.stages[i].cards[k], onPick));
    });
  });
  const words = stages.map((stage) => `${layers(stage.layers)} on ` +
    stage.shards.map((shard) => shard.node_id).join(' and ')).join(', then ');
  return h('svg', {
    class: 'ring', width: layout.width, height: layout.height, role: 'group',
    viewBox: `0 0 ${layout.width} ${layout.height}`,
    'aria-label': `Ring of ${model.name}: ${words}${stages.length > 1 ? ', and back' : ''}`,
  }, h('g', {'aria-hidden': 'true'}, links), cards);
}

// Every pair of neighbours between two stages. `busy`: the links that carry sessions.
function drawLinks(state, stages, layout, from, to, busy) {
  return stages[from].shards.flatMap((a, i) => stages[to].shards.flatMap((b, k) => {
    const at = linkPath(layout, from, to, layout.stages[from].cards[i], layout.stages[to].cards[k]);
    const {tone, word} = linkState(state, [[a, b]], busy);
    return line(`${a.node_id}>${b.node_id}`, tone, word, at);
  }));
}

// From the last stage back to the head: one line for all pairs, which shows the worst of them.
function drawWayHome(state, stages, layout, busy) {
  const last = stages[stages.length - 1];
  const pairs = last.shards.flatMap((a) => stages[0].shards.map((b) => [a, b]));
  const {tone, word, silent} = linkState(state, pairs, busy);
  const names = silent && pairs.length > 1 ? `${silent[0].node_id} to ${silent[1].node_id} ` : '';
  return line('home', tone, word && names + word, homePath(layout));
}

function linkState(state, pairs, busy) {
  let worst = 0;
  let silent = null;
  for (const [a, b] of pairs) {
    if (a.node_lost || b.node_lost) continue;
    const ms = Math.max(linkSilence(state, a.node_id, b.node_id),
                        linkSilence(state, b.node_id, a.node_id));
    if (ms > worst) {
      worst = ms;
      silent = [a, b];
    }
  }
  if (pairs.every(([a, b]) => a.node_lost || b.node_lost)) return {tone: 'dead', word: ''};
  if (silent) return {tone: 'silent', word: `silent ${duration(worst)}`, silent};
  const flows = pairs.some(([a, b]) => busy.has(`${a.node_id}>${b.node_id}`));
  return {tone: flows ? 'flow' : 'calm', word: ''};
}

function line(key, tone, word, at) {
  return [
    h('path', {key, class: `link link-${tone}`, d: at.d}),
    h('path', {key: `${key}^`, class: `tip tip-${tone}`, d: tip(at.end, at.angle)}),
    word ? h('text', {key: `${key}!`, class: 'link-word', x: at.middle.x, y: at.middle.y - 6,
                      'text-anchor': 'middle'}, word) : h('g', {key: `${key}!`}),
  ];
}

// From card `a` to card `b`: sideways within a row, down between rows.
function linkPath(layout, from, to, a, b) {
  const {card: w, gap} = layout;
  const start = layout.stages[from];
  if (start.row === layout.stages[to].row) {
    const dir = start.forward ? 1 : -1;
    const x1 = dir > 0 ? a.x + w : a.x;
    const x2 = dir > 0 ? b.x : b.x + w;
    const y1 = a.y + kCard.height / 2;
    const y2 = b.y + kCard.height / 2;
    const bend = dir * gap * 0.45;
    return {d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - dir * 5} ${y2}`,
            end: {x: x2, y: y2}, angle: dir > 0 ? 0 : 180,
            middle: {x: (x1 + x2) / 2, y: (y1 + y2) / 2}};
  }
  const x1 = a.x + w / 2;
  const x2 = b.x + w / 2;
  const y1 = a.y + kCard.height;
  const mid = (y1 + b.y) / 2;
  return {d: `M${x1} ${y1}C${x1} ${mid} ${x2} ${mid} ${x2} ${b.y - 5}`, end: {x: x2, y: b.y},
          angle: 90, middle: {x: (x1 + x2) / 2 + 46, y: mid + 8}};
}

// Below everything; to the head from below where nothing is in the way, else from the left.
function homePath(layout) {
  const head = layout.stages[0];
  const last = layout.stages[layout.stages.length - 1];
  const low = layout.height - 13;
  const x1 = last.x + layout.card / 2;
  const y1 = last.y + last.height;
  if (head.row === last.row) {
    const x2 = head.x + layout.card / 2;
    const y2 = head.y + head.height;
    return {d: `M${x1} ${y1}V${low - 8}Q${x1} ${low} ${x1 - 8} ${low}H${x2 + 8}` +
               `Q${x2} ${low} ${x2} ${low - 8}V${y2 + 5}`,
            end: {x: x2, y: y2}, angle: 270, middle: {x: (x1 + x2) / 2, y: low}};
  }
  const side = head.x - 9;
  const y2 = head.y + head.height / 2;
  return {d: `M${x1} ${y1}V${low - 8}Q${x1} ${low} ${x1 - 8} ${low}H${side + 8}` +
             `Q${side} ${low} ${side} ${low - 8}V${y2 + 6}Q${side} ${y2} ${side + 6} ${y2}`,
          end: {x: head.x, y: y2}, angle: 0, middle: {x: (side + x1) / 2, y: low}};
}

function tip(at, angle) {
  const turn = (x, y) => {
    const r = (angle * Math.PI) / 180;
    return `${(at.x + x * Math.cos(r) - y * Math.sin(r)).toFixed(1)} ` +
           `${(at.y + x * Math.sin(r) + y * Math.cos(r)).toFixed(1)}`;
  };
  return `M${turn(0, 0)}L${turn(-7, -4)}L${turn(-7, 4)}Z`;
}

function drawCard(state, stage, shard, width, at, onPick) {
  const node = state.nodes.find((n) => n.node_id === shard.node_id);
  const now = node ? nodeStatus(node, state) : {tone: 'bad', word: 'lost', icon: 'lost', why: ''};
  const name = shard.node_id;
  const shown = name.length > 14 ? `${name.slice(0, 6)}…${name.slice(-7)}` : name;
  const words = `${name}${shard.is_head ? ', head' : ''}, ${layers(stage.layers)}, ${now.word}` +
                (now.why ? `: ${now.why}` : '');
  return h('a', {
    key: `${name}/${stage.layers.begin}`, class: `card tone-${now.tone} is-${now.word}`,
    href: `#cluster/${encodeURIComponent(name)}`, 'aria-label': words,
    transform: `translate(${at.x} ${at.y})`, onclick: () => onPick(name),
  },
  h('title', null, words),
  h('rect', {class: 'card-box', width, height: kCard.height, rx: 6}),
  h('rect', {class: 'card-edge', width: 4, height: kCard.height - 12, x: 0, y: 6, rx: 2}),
  h('use', {class: 'glyph', href: `/assets/icons.svg#s-${now.icon}`, x: 12, y: 9, width: 14,
            height: 14}),
  h('text', {class: 'card-name', x: 32, y: 21}, shown),
  shard.is_head ? h('text', {class: 'card-head', x: width - 10, y: 21, 'text-anchor': 'end'},
                    shown.length > (width > 170 ? 13 : 10) ? 'H' : 'head') : null,
  h('text', {class: 'card-layers', x: 12, y: 42}, layers(stage.layers)),
  h('text', {class: 'card-word', x: width - 10, y: 42, 'text-anchor': 'end'}, now.word));
}
