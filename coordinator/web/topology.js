// The ring of a model as a picture: stages in order, replicas stacked, links with their direction.
// layoutRing() is pure; drawRing() makes SVG of it.

import {h} from './dom.js';
import {duration, layers} from './format.js';
import {linkSilence, nodeStatus} from './facts.js';

const kCard = {width: 148, height: 54};
const kGap = {x: 56, y: 34, stack: 10};
const kMargin = {x: 10, top: 12, bottom: 30};

// Stages run left to right, then wrap and run back, so that no link crosses the picture. Returns
// {width, height, stages: [{x, y, height, row, forward, cards: [{x, y}…]}…], perRow}.
export function layoutRing(stackSizes, width) {
  const room = width - 2 * kMargin.x + kGap.x;
  const perRow = Math.max(1, Math.min(stackSizes.length, Math.floor(room / (kCard.width + kGap.x))));
  const used = perRow * (kCard.width + kGap.x) - kGap.x;
  const left = Math.max(kMargin.x, (width - used) / 2);
  const stages = [];
  let y = kMargin.top;
  for (let begin = 0; begin < stackSizes.length; begin += perRow) {
    const row = begin / perRow;
    const sizes = stackSizes.slice(begin, begin + perRow);
    const rowHeight = stackHeight(Math.max(...sizes));
    sizes.forEach((size, i) => {
      const column = row % 2 === 0 ? i : perRow - 1 - i;
      const x = left + column * (kCard.width + kGap.x);
      const height = stackHeight(size);
      const top = y + (rowHeight - height) / 2;
      const cards = Array.from({length: size}, (_, k) => (
        {x, y: top + k * (kCard.height + kGap.stack)}));
      stages.push({x, y: top, height, row, forward: row % 2 === 0, cards});
    });
    y += rowHeight + kGap.y;
  }
  return {width, height: y - kGap.y + kMargin.bottom, stages, perRow};
}

function stackHeight(size) {
  return size * (kCard.height + kGap.stack) - kGap.stack;
}

export function drawRing(state, model, stages, width, onPick) {
  const layout = layoutRing(stages.map((stage) => stage.shards.length), width);
  const busy = state.sessions.some((session) => session.model === model.name);
  const links = [];
  const cards = [];
  stages.forEach((stage, i) => {
    const next = (i + 1) % stages.length;
    if (stages.length > 1) {
      links.push(...drawLinks(state, stages, layout, i, next, busy));
    }
    stage.shards.forEach((shard, k) => {
      cards.push(drawCard(state, stage, shard, layout.stages[i].cards[k], onPick));
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

function drawLinks(state, stages, layout, from, to, busy) {
  const out = [];
  stages[from].shards.forEach((a, i) => {
    stages[to].shards.forEach((b, k) => {
      const silent = Math.max(linkSilence(state, a.node_id, b.node_id),
                              linkSilence(state, b.node_id, a.node_id));
      const dead = a.node_lost || b.node_lost;
      const tone = dead ? 'dead' : silent > 0 ? 'silent' : busy ? 'flow' : 'calm';
      const line = linkPath(layout, from, to, layout.stages[from].cards[i],
                            layout.stages[to].cards[k]);
      const key = `${a.node_id}>${b.node_id}`;
      out.push(h('path', {key, class: `link link-${tone}`, d: line.d}));
      out.push(h('path', {key: `${key}^`, class: `tip tip-${tone}`, d: tip(line.end, line.angle)}));
      if (silent > 0 && !dead) {
        out.push(h('text', {key: `${key}!`, class: 'link-word', x: line.middle.x,
                            y: line.middle.y - 6, 'text-anchor': 'middle'},
                   `silent ${duration(silent)}`));
      }
    });
  });
  return out;
}

// From card `a` to card `b`: sideways within a row, down between rows, and back to the head round
// the outside of the picture.
function linkPath(layout, from, to, a, b) {
  const {width: w, height: hgt} = kCard;
  const start = layout.stages[from];
  const end = layout.stages[to];
  if (to > from && start.row === end.row) {
    const dir = start.forward ? 1 : -1;
    const x1 = dir > 0 ? a.x + w : a.x;
    const x2 = dir > 0 ? b.x : b.x + w;
    const y1 = a.y + hgt / 2;
    const y2 = b.y + hgt / 2;
    const bend = dir * kGap.x * 0.45;
    return {d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - dir * 5} ${y2}`,
            end: {x: x2, y: y2}, angle: dir > 0 ? 0 : 180,
            middle: {x: (x1 + x2) / 2, y: (y1 + y2) / 2}};
  }
  if (to > from) {
    const x = a.x + w / 2;
    const y1 = a.y + hgt;
    const x2 = b.x + w / 2;
    const mid = (y1 + b.y) / 2;
    return {d: `M${x} ${y1}C${x} ${mid} ${x2} ${mid} ${x2} ${b.y - 5}`, end: {x: x2, y: b.y},
            angle: 90, middle: {x: (x + x2) / 2 + 40, y: mid + 8}};
  }
  // The way home: below everything, up at the outer side of the head. Two stages that face each
  // other in one row need no detour.
  const low = layout.height - 12;
  const x1 = a.x + w / 2 + (start.row === end.row ? 0 : 10);
  const y1 = a.y + hgt;
  if (start.row === end.row) {
    const x2 = b.x + w / 2;
    return {d: `M${x1} ${y1}V${low - 8}Q${x1} ${low} ${x1 - 8} ${low}H${x2 + 8}` +
               `Q${x2} ${low} ${x2} ${low - 8}V${b.y + hgt + 5}`,
            end: {x: x2, y: b.y + hgt}, angle: 270, middle: {x: (x1 + x2) / 2, y: low}};
  }
  const side = Math.max(3, b.x - 7);
  const y2 = b.y + hgt / 2;
  return {d: `M${x1} ${y1}V${low - 8}Q${x1} ${low} ${x1 - 8} ${low}H${side + 8}` +
             `Q${side} ${low} ${side} ${low - 8}V${y2 + 5}Q${side} ${y2} ${b.x - 2} ${y2}`,
          end: {x: b.x, y: y2}, angle: 0, middle: {x: (side + x1) / 2, y: low}};
}

function tip(at, angle) {
  const turn = (x, y) => {
    const r = (angle * Math.PI) / 180;
    return `${(at.x + x * Math.cos(r) - y * Math.sin(r)).toFixed(1)} ` +
           `${(at.y + x * Math.sin(r) + y * Math.cos(r)).toFixed(1)}`;
  };
  return `M${turn(0, 0)}L${turn(-7, -4)}L${turn(-7, 4)}Z`;
}

function drawCard(state, stage, shard, at, onPick) {
  const node = state.nodes.find((n) => n.node_id === shard.node_id);
  const now = node ? nodeStatus(node, state) : {tone: 'bad', word: 'lost', icon: 'lost', why: ''};
  const name = shard.node_id;
  const shown = name.length > 15 ? `${name.slice(0, 6)}…${name.slice(-8)}` : name;
  const words = `${name}${shard.is_head ? ', head' : ''}, ${layers(stage.layers)}, ${now.word}` +
                (now.why ? `: ${now.why}` : '');
  return h('a', {
    key: `${name}/${stage.layers.begin}`, class: `card tone-${now.tone} is-${now.word}`,
    href: `#cluster/${encodeURIComponent(name)}`, 'aria-label': words,
    transform: `translate(${at.x} ${at.y})`, onclick: onPick ? (e) => onPick(e, name) : undefined,
  },
  h('title', null, words),
  h('rect', {class: 'card-box', width: kCard.width, height: kCard.height, rx: 6}),
  h('rect', {class: 'card-edge', width: 4, height: kCard.height - 12, x: 0, y: 6, rx: 2}),
  h('use', {class: 'glyph', href: `/assets/icons.svg#s-${now.icon}`, x: 12, y: 9, width: 14,
            height: 14}),
  h('text', {class: 'card-name', x: 32, y: 21}, shown),
  shard.is_head ? h('text', {class: 'card-head', x: kCard.width - 10, y: 21,
                             'text-anchor': 'end'}, shown.length > 11 ? 'H' : 'head') : null,
  h('text', {class: 'card-layers', x: 12, y: 42}, layers(stage.layers)),
  h('text', {class: 'card-word', x: kCard.width - 10, y: 42, 'text-anchor': 'end'}, now.word));
}
