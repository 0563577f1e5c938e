// What operators do from the page: every act says first what will happen, then does it.

import {call} from './api.js';
import {confirmDialog, notify} from './dialogs.js';
import {h} from './dom.js';
import {duration, layers, num, plural} from './format.js';
import {lonelyLayers, shardsOf} from './facts.js';

async function act(method, path, body, done) {
  try {
    await call(method, path, body);
    notify('ok', done);
    return true;
  } catch (error) {
    notify('bad', error.message);
    return false;
  }
}

function nodePath(node, verb) {
  return `/admin/v1/nodes/${encodeURIComponent(node.node_id)}/${verb}`;
}

export async function drainNode(node, state) {
  const lonely = lonelyLayers(node, state);
  const lines = [
    `${node.node_id} gets no new sessions from now on.`,
    num(node.sessions_running) > 0
      ? `${plural(node.sessions_running, 'session')} may end there; what still runs at the ` +
        'deadline moves to other nodes, without losing a token.'
      : 'Nothing runs there now, so it is empty at once.',
  ];
  if (lonely.length) {
    lines.push(`No other node takes sessions for ${lonely.map(layers).join(', ')}: the drain is ` +
               'refused unless forced, and forced it leaves requests waiting for a route.');
  }
  const answer = await confirmDialog({
    title: `Drain ${node.node_id}?`, lines, verb: 'Drain', dangerous: true,
    command: `shardctl node drain ${node.node_id} --deadline 30s${lonely.length ? ' --force' : ''}`,
    fields: h('div', {class: 'fields'},
      h('label', {class: 'field'}, h('span', null, 'Deadline, seconds'),
        h('input', {type: 'number', name: 'seconds', min: '0', max: '86400', value: '30'})),
      lonely.length ? h('label', {class: 'check'}, h('input', {type: 'checkbox', name: 'force'}),
                        h('span', null, 'Force: drain all the same')) : null),
  });
  if (!answer) return;
  const deadline = Math.max(0, Math.min(86400, Number(answer.seconds) || 0)) * 1000;
  await act('POST', nodePath(node, 'drain'),
            {deadline_ms: deadline, force: Boolean(answer.force)},
            `${node.node_id} drains, at most ${duration(deadline)}`);
}

export async function cordonNode(node) {
  const ok = await confirmDialog({
    title: `Cordon ${node.node_id}?`, verb: 'Cordon',
    lines: [`${node.node_id} gets no new sessions; what runs there goes on.`,
            'New plans leave it out. Undo it with Uncordon.'],
    command: `shardctl node cordon ${node.node_id}`,
  });
  if (ok) await act('POST', nodePath(node, 'cordon'), {}, `${node.node_id} is cordoned`);
}

export async function uncordonNode(node) {
  await act('POST', nodePath(node, 'uncordon'), {}, `${node.node_id} takes sessions again`);
}

export async function removeNode(node, state) {
  const held = shardsOf(state, node.node_id);
  const ok = await confirmDialog({
    title: `Forget ${node.node_id}?`, verb: 'Forget it', dangerous: true,
    lines: [`${node.node_id} leaves the list of nodes. It is lost; nothing is stopped by this.`,
            held.length ? `Its ${held.map((s) => layers(s.layers)).join(', ')} are placed on ` +
                          'other nodes as far as they have room.'
                        : 'It holds no layers, so no plan changes.',
            'If its process comes back, it joins as any new node does.'],
    command: `shardctl node remove ${node.node_id}`,
  });
  if (ok) await act('POST', nodePath(node, 'remove'), {}, `${node.node_id} is forgotten`);
}

export async function cancelSession(session) {
  const ok = await confirmDialog({
    title: `Cancel session ${session.session}?`, verb: 'Cancel the session', dangerous: true,
    lines: [`Its client gets an error after ${plural(session.tokens, 'token')}; nothing is billed.`,
            'All its pages on every node are freed.'],
    command: `shardctl session cancel ${session.session}`,
  });
  if (!ok) return;
  await act('POST', `/admin/v1/sessions/${session.session}/cancel`,
            {reason: 'cancelled from the page'}, `session ${session.session} is cancelled`);
}

export async function unloadModel(model, state) {
  const running = state.sessions.filter((s) => s.model === model.name).length;
  const ok = await confirmDialog({
    title: `Unload ${model.name}?`, verb: 'Unload', dangerous: true,
    lines: [`${model.name} leaves the memory of all its nodes; requests for it are refused.`,
            running ? `${plural(running, 'running session')} of it end with an error.`
                    : 'No session of it is running.'],
    command: `shardctl model unload ${model.name}`,
  });
  if (ok) {
    await act('DELETE', `/admin/v1/models/${encodeURIComponent(model.name)}`, undefined,
              `${model.name} is unloaded`);
  }
}

export async function loadModel(request, fit) {
  const name = request.name || request.path.replace(/^.*\//, '').replace(/\.gguf$/, '');
  const lines = [fit && fit.fits ? `${name} is placed on ${plural(fit.shards.length, 'node')} as ` +
                                   'the preview shows, and each reads its own part of the file.'
                                 : `${name} is placed where it fits; without room it is refused ` +
                                   'with the arithmetic.',
                 'It takes requests once a token has gone through all its nodes.'];
  const flags = [['shards', request.shards], ['replicas', request.replicas],
                 ['context', request.context_tokens_max]];
  const ok = await confirmDialog({
    title: `Load ${name}?`, verb: 'Load', lines,
    command: `shardctl model load ${request.path}` +
             flags.filter(([, v]) => v > 0).map(([k, v]) => ` --${k} ${v}`).join(''),
  });
  return ok ? act('POST', '/admin/v1/models', request, `${name} is being loaded`) : false;
}
