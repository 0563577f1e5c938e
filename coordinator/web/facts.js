// What a snapshot means: states in words, rings, coverage, and what is wrong. Pure.

import {bytesOf, duration, layers, num, percent, plural} from './format.js';

// A node beats every 250 ms and is lost after 1.4 s of silence.
const kStaleMs = 900;

// A status is {tone, word, why}: tone is "ok", "busy", "warn", "bad" or "idle", and every word has
// one shape in icons.svg, so that colour is never the only sign.
const kStatusIcons = {
  'ready': 'ready', 'loading': 'loading', 'lost': 'lost', 'failed': 'failed', 'stale': 'stale',
  'cordoned': 'cordoned', 'draining': 'draining', 'drained': 'drained', 'spare': 'spare',
  'degraded': 'failed', 'waiting': 'loading', 'unproven': 'loading', 'unknown': 'stale',
};

function status(tone, word, why) {
  return {tone, word, icon: kStatusIcons[word] || 'stale', why: why || ''};
}

export function shardsOf(state, nodeId) {
  return state.shards.filter((shard) => shard.node_id === nodeId);
}

export function nodeStatus(node, state) {
  if (node.state === 'NODE_STATE_LOST') return status('bad', 'lost', node.reason);
  const failed = shardsOf(state, node.node_id).find((s) => s.state === 'SHARD_STATE_FAILED');
  if (failed) return status('bad', 'failed', node.reason);
  if (num(node.last_beat_ms) > kStaleMs) {
    return status('warn', 'stale', `no heartbeat for ${duration(node.last_beat_ms)}`);
  }
  const through = plural(node.sessions_running, 'session');
  switch (node.duty) {
    case 'NODE_DUTY_CORDONED':
      return status('warn', 'cordoned', `gets no new sessions; ${through} running`);
    case 'NODE_DUTY_DRAINING':
      return status('warn', 'draining',
                    `${through} left; they move in ${duration(node.drain_left_ms)}`);
    case 'NODE_DUTY_DRAINED':
      return status('idle', 'drained', 'nothing runs here; safe to stop');
  }
  if (node.state === 'NODE_STATE_LOADING') return status('busy', 'loading', loadText(node, state));
  if (node.state !== 'NODE_STATE_READY') return status('warn', 'unknown', node.state);
  return node.model ? status('ok', 'ready') : status('idle', 'spare', 'holds no layers');
}

function loadText(node, state) {
  const shard = shardsOf(state, node.node_id)[0];
  return shard ? bytesOf(shard.bytes_done, shard.bytes) : '';
}

export function modelStatus(model) {
  switch (model.state) {
    case 'MODEL_STATE_READY': return status('ok', 'ready');
    case 'MODEL_STATE_LOADING': return status('busy', 'loading', model.reason);
    case 'MODEL_STATE_DEGRADED': return status('bad', 'degraded', model.reason);
    case 'MODEL_STATE_FAILED': return status('bad', 'failed', model.reason);
  }
  return status('warn', 'unknown', model.reason);
}

export function shardStatus(shard) {
  if (shard.node_lost) return status('bad', 'lost');
  switch (shard.state) {
    case 'SHARD_STATE_LOADED':
      return shard.proven ? status('ok', 'ready') : status('busy', 'unproven', 'no token yet');
    case 'SHARD_STATE_LOADING':
      return status('busy', 'loading', percent(shard.bytes_done, shard.bytes));
    case 'SHARD_STATE_FAILED': return status('bad', 'failed');
  }
  return status('busy', 'waiting', 'for the node');
}

function serves(shard) {
  return shard.state === 'SHARD_STATE_LOADED' && !shard.node_lost;
}

// The stages of a model in ring order: [{layers, isHead, shards: [ShardSummary…]}…]; the ring
// closes from the last to the first. Shards with the same range are replicas of one stage.
export function stagesOf(state, modelName) {
  const stages = new Map();
  for (const shard of state.shards) {
    if (shard.model !== modelName || !shard.layers) continue;
    const range = {begin: num(shard.layers.begin), end: num(shard.layers.end)};
    const key = `${range.begin}-${range.end}`;
    if (!stages.has(key)) stages.set(key, {layers: range, isHead: false, shards: []});
    const stage = stages.get(key);
    stage.shards.push(shard);
    stage.isHead = stage.isHead || Boolean(shard.is_head);
  }
  return [...stages.values()].sort(
    (a, b) => a.layers.begin - b.layers.begin || a.layers.end - b.layers.end);
}

// Nodes that hold nothing of any model.
export function spareNodes(state) {
  const holders = new Set(state.shards.map((shard) => shard.node_id));
  return state.nodes.filter((node) => !holders.has(node.node_id));
}

// How long `from` has not heard `to`, in ms; 0: it hears it.
export function linkSilence(state, from, to) {
  const node = state.nodes.find((n) => n.node_id === from);
  const link = node && (node.links || []).find((l) => l.to === to);
  return link && link.silent_ms !== null && link.silent_ms !== undefined ? num(link.silent_ms) : 0;
}

// The links that sessions of this model run over, as "from>to"; the ring closes on the head.
export function busyLinks(state, modelName) {
  const links = new Set();
  for (const session of state.sessions) {
    if (session.model !== modelName) continue;
    const nodes = (session.route || []).map((hop) => hop.node_id);
    nodes.forEach((node, i) => links.add(`${node}>${nodes[(i + 1) % nodes.length]}`));
  }
  return links;
}

// Ranges of layers that no live node holds or is loading: [{begin, end}…].
export function gapsOf(model, stages) {
  const total = num(model.layers);
  const held = new Array(total).fill(false);
  for (const stage of stages) {
    if (stage.shards.every((s) => s.node_lost || s.state === 'SHARD_STATE_FAILED')) continue;
    held.fill(true, Math.max(0, stage.layers.begin), Math.min(total, stage.layers.end));
  }
  const gaps = [];
  for (let i = 0; i < total; ++i) {
    if (held[i]) continue;
    if (gaps.length && gaps[gaps.length - 1].end === i) ++gaps[gaps.length - 1].end;
    else gaps.push({begin: i, end: i + 1});
  }
  return gaps;
}

// The cluster in one word, for the bar at the top.
export function clusterStatus(state) {
  const ready = state.models.filter((m) => m.state === 'MODEL_STATE_READY').length;
  if (state.cluster.healthy) return {tone: 'ok', word: 'Healthy', icon: 'ready'};
  if (ready > 0) return {tone: 'warn', word: 'Serving, with problems', icon: 'cordoned'};
  if (state.models.some((m) => m.state === 'MODEL_STATE_LOADING')) {
    return {tone: 'busy', word: 'Loading', icon: 'loading'};
  }
  return {tone: 'bad', word: 'Not serving', icon: 'failed'};
}

function lastEvent(timeline, kinds, field, name) {
  for (let i = timeline.length - 1; i >= 0; --i) {
    if (kinds.includes(timeline[i].kind) && timeline[i][field] === name) return timeline[i];
  }
  return null;
}

// Everything that is red or amber: {key, tone, what, why, sinceMs, command, hint, node, model}.
// `sinceMs` is the coordinator's wall time, or 0 when nobody knows.
export function problemsOf(state, timeline, grpcAddress) {
  const out = [];
  for (const node of state.nodes) {
    const now = nodeStatus(node, state);
    if (now.word === 'lost') out.push(lostNode(node, state, timeline, grpcAddress));
    if (now.word === 'stale') {
      out.push({key: `stale-${node.node_id}`, tone: 'warn', what: `${node.node_id} is stale`,
                why: now.why, sinceMs: state.at_unix_ms - num(node.last_beat_ms),
                command: `shardctl node list -o wide`, node: node.node_id,
                hint: 'It counts as lost when the silence outlasts its lease.'});
    }
  }
  for (const model of state.models) {
    const now = modelStatus(model);
    if (now.tone !== 'bad') continue;
    const event = lastEvent(timeline, ['model_degraded', 'model_failed'], 'model', model.name);
    const gaps = gapsOf(model, stagesOf(state, model.name));
    out.push({
      key: `model-${model.name}`, tone: 'bad', what: `${model.name} is ${now.word}`,
      why: model.reason || 'No reason is known.', sinceMs: event ? event.at_unix_ms : 0,
      hint: gaps.length ? `On no live node: ${gaps.map(layers).join(', ')}. Requests are refused.`
                        : 'Requests are refused.',
      command: 'shardctl status', model: model.name,
    });
  }
  // What a model lacks is told above, and what still loads is no problem.
  const told = (line) => state.models.some(
    (m) => m.state !== 'MODEL_STATE_READY' && line.startsWith(`${m.name}: `));
  for (const line of state.cluster.problems || []) {
    if (told(line)) continue;
    out.push({key: `line-${line.replace(/[0-9.]+/g, '#')}`, tone: 'warn', ...splitLine(line),
              sinceMs: 0});
  }
  return out;
}

function lostNode(node, state, timeline, grpcAddress) {
  const event = lastEvent(timeline, ['node_lost'], 'node', node.node_id);
  const held = shardsOf(state, node.node_id);
  return {
    key: `node-${node.node_id}`, tone: held.length ? 'bad' : 'warn',
    what: `${node.node_id} is lost`,
    why: node.reason || 'No reason is known.',
    sinceMs: event ? event.at_unix_ms : state.at_unix_ms - num(node.last_beat_ms),
    hint: (held.length ? `It held ${held.map((s) => layers(s.layers)).join(', ')}. `
                       : 'It held no layers; nothing waits for it. ') +
          'Start it with the data directory it had, or forget it below.',
    command: `shardline-node --node-id ${node.node_id} --coordinator ${grpcAddress} --data-dir DIR`,
    node: node.node_id,
  };
}

// The coordinator's lines read "what: why; what helps", the last two where there is such a thing.
function splitLine(line) {
  const semicolon = line.lastIndexOf('; ');
  const hint = semicolon > 0 ? line.slice(semicolon + 2) : '';
  const rest = semicolon > 0 ? line.slice(0, semicolon) : line;
  const colon = rest.indexOf(': ');
  return {
    what: colon > 0 ? rest.slice(0, colon) : rest, why: colon > 0 ? rest.slice(colon + 2) : '',
    hint: hint.startsWith('shardctl ') ? '' : hint && `${hint[0].toUpperCase()}${hint.slice(1)}.`,
    command: hint.startsWith('shardctl ') ? hint : 'shardctl status',
  };
}

// What may be done with a node, and why not: {drain, cordon, uncordon, remove}: '' or a reason.
export function nodeActions(node, state) {
  const lost = node.state === 'NODE_STATE_LOST';
  const duty = node.duty || 'NODE_DUTY_SERVING';
  const open = duty === 'NODE_DUTY_SERVING' || duty === 'NODE_DUTY_UNSPECIFIED';
  const gone = `${node.node_id} is lost`;
  const closed = `${node.node_id} is ${duty.slice('NODE_DUTY_'.length).toLowerCase()} already`;
  const down = duty === 'NODE_DUTY_DRAINING' || duty === 'NODE_DUTY_DRAINED';
  return {
    drain: lost ? gone : down ? closed : '',
    cordon: lost ? gone : open ? '' : closed,
    uncordon: lost ? gone : open ? `${node.node_id} takes sessions already` : '',
    remove: lost ? '' : `${node.node_id} is live: drain and stop it first`,
  };
}

// The layers that would have no other node that takes sessions if `node` went: [{begin, end}…].
export function lonelyLayers(node, state) {
  const takes = (shard) => {
    const other = state.nodes.find((n) => n.node_id === shard.node_id);
    return serves(shard) && other && (other.duty || 'NODE_DUTY_SERVING') === 'NODE_DUTY_SERVING';
  };
  return shardsOf(state, node.node_id).filter((mine) => !state.shards.some(
    (s) => s.node_id !== node.node_id && s.model === mine.model && takes(s) &&
           num(s.layers.begin) <= num(mine.layers.begin) &&
           num(s.layers.end) >= num(mine.layers.end))).map((s) => s.layers);
}
