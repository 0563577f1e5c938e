// Where the time of one request went: queue, prompt, tokens, and the share of every node in a lap
// round the ring.

import {h, icon} from './dom.js';
import {count, layers, micros, num, plural, rate} from './format.js';

// The parts of a request, in order: {phases: [{name, begin, end}], total} in µs, and of an average
// lap of the decode: {parts: [{name, us, kind}], us} or null. Pure.
export function breakdown(request) {
  const total = Math.max(1, num(request.total_us));
  const first = Math.min(total, num(request.ttft_us));
  const queued = Math.min(first || total, num(request.queued_us));
  const phases = [{name: 'Queued', kind: 'queue', begin: 0, end: queued},
                  {name: 'Prompt', kind: 'prompt', begin: queued, end: first || total},
                  {name: 'Tokens', kind: 'tokens', begin: first || total, end: total}];
  return {total, phases, lap: lapOf(request)};
}

function lapOf(request) {
  const timings = request.timings || {};
  const laps = num(timings.laps);
  if (!laps || !num(timings.lap_us)) return null;
  const us = num(timings.lap_us) / laps;
  const stages = request.stages || [];
  const parts = stages.map((stage, i) => ({
    name: stage.node_id, detail: layers(stage.layers), kind: `node node-${i % 4}`,
    us: num((timings.stage_us || [])[i] || stage.compute_us) / laps,
  }));
  const known = parts.reduce((sum, part) => sum + part.us, 0);
  parts.push({name: 'Links and waiting', detail: '', kind: 'rest', us: Math.max(0, us - known)});
  return {us: Math.max(us, known), laps, parts};
}

export function waterfall(request) {
  const {total, phases, lap} = breakdown(request);
  return h('div', {class: 'waterfall'},
    h('h4', null, 'This request'),
    h('table', {'aria-label': 'Phases of the request'},
      h('tbody', null, phases.map((phase) => h('tr', {key: phase.name},
        h('th', {scope: 'row'}, phase.name),
        h('td', {class: 'fall'}, bar(phase.kind, phase.begin / total, (phase.end - phase.begin) /
                                                                      total)),
        h('td', {class: 'num'}, micros(phase.end - phase.begin)),
        h('td', {class: 'dim'}, phaseDetail(phase.kind, request)))))),
    lap ? h('h4', null, `One lap of the ring, the mean of ${count(lap.laps)}: ${micros(lap.us)}`)
        : null,
    lap ? h('table', {'aria-label': 'Mean lap of the ring by node'},
      h('tbody', null, lap.parts.map((part, i) => h('tr', {key: i},
        h('th', {scope: 'row'}, part.name),
        h('td', {class: 'fall'}, bar(part.kind, before(lap.parts, i) / lap.us, part.us / lap.us)),
        h('td', {class: 'num'}, micros(part.us)),
        h('td', {class: 'dim'}, part.detail))))) : null,
    (request.restarts || []).map((restart, i) => h('p', {key: i, class: 'restart tone-warn'},
      icon('s-cordoned', 'Warning'), ` Went on as epoch ${restart.epoch}: ${restart.reason}`)),
    h('p', {class: 'dim'}, [`session ${request.session}, epoch ${request.epoch}`,
                            request.request_id].filter(Boolean).join(' · ')));
}

function before(parts, index) {
  return parts.slice(0, index).reduce((sum, part) => sum + part.us, 0);
}

function bar(kind, begin, share) {
  return h('div', {class: 'fall-track'}, h('div', {class: `fall-bar fall-${kind}`, style: {
    left: `${(100 * Math.min(1, begin)).toFixed(2)}%`,
    width: `${(100 * Math.min(1, share)).toFixed(2)}%`}}));
}

function phaseDetail(kind, request) {
  if (kind === 'prompt') {
    return `${plural(request.prompt_tokens, 'token')}, ${count(request.cached_tokens)} cached`;
  }
  if (kind === 'tokens') {
    return `${plural(request.tokens, 'token')}, ${rate(request.tokens_per_s)}`;
  }
  return '';
}
