// The page's pure modules, run inside the browser that runs the page. See test_modules.py.

import {Answer, chatRequest} from '/assets/chat_answer.js';
import {ChatStore} from '/assets/chat_store.js';
import {splitThought} from '/assets/chat_view.js';
import {snippets} from '/assets/connect.js';
import {element, h, render} from '/assets/dom.js';
import {busyLinks, gapsOf, lonelyLayers, nodeActions, problemsOf, stagesOf} from '/assets/facts.js';
import {bytes, bytesOf, duration, layers, micros, percent, rate} from '/assets/format.js';
import {markdown} from '/assets/markdown.js';
import {placementRequest} from '/assets/placement.js';
import {SseParser} from '/assets/sse.js';
import {filterEvents} from '/assets/timeline.js';
import {layoutRing} from '/assets/topology.js';
import {breakdown} from '/assets/waterfall.js';

function same(got, want) {
  const a = JSON.stringify(got);
  const b = JSON.stringify(want);
  if (a !== b) throw new Error(`got ${a}, want ${b}`);
}

function html(text) {
  return element(h('div', null, markdown(text))).innerHTML;
}

function has(text, want) {
  const got = html(text);
  if (!got.includes(want)) throw new Error(`${JSON.stringify(got)} has no ${want}`);
}

function parse(...pieces) {
  const parser = new SseParser();
  return pieces.flatMap((piece) => parser.push(piece));
}

const kEvents = [{event: 'state', data: '{"a":1}\nb', id: '7'}, {event: 'message', data: 'x'}];
const kText = ': ping\r\nevent: state\r\nid: 7\r\ndata: {"a":1}\r\ndata:b\r\n\r\ndata: x\r\n\r\n';

const storage = (value) => ({value, getItem() { return this.value; },
                             setItem(_, text) { this.value = text; }});

export const tests = {
  'an event stream cut anywhere gives the same events'() {
    same(parse(kText), kEvents);
    for (let i = 1; i < kText.length; ++i) same(parse(kText.slice(0, i), kText.slice(i)), kEvents);
    same(parse(...kText), kEvents);
    same(parse(kText.replaceAll('\r\n', '\n')), kEvents);
    same(parse(`${kText.replaceAll('\r\n', '\r')}x`), kEvents);
  },
  'an event without data is no event, an endless one is refused'() {
    same(parse('event: ping\n\n', 'data\n\n'), [{event: 'message', data: ''}]);
    const parser = new SseParser();
    let refused = false;
    try {
      for (let i = 0; i < 40; ++i) parser.push('x'.repeat(1 << 20));
    } catch {
      refused = true;
    }
    same(refused, true);
  },
  'an answer is done only with its finish reason'() {
    const chunk = (delta, finish) => JSON.stringify(
      {choices: [{index: 0, delta, finish_reason: finish}]});
    const whole = new Answer(0);
    whole.take(chunk({content: 'Hi'}, null), 100);
    whole.take(chunk({}, 'stop'), 200);
    whole.end();
    same([whole.phase, whole.content, whole.stats().ttftMs], ['done', 'Hi', 100]);
    const cut = new Answer(0);
    cut.take(chunk({content: 'Hi'}, null), 100);
    same(cut.take('[DONE]', 150), true);
    cut.end();
    same([cut.phase, cut.error.code], ['broken', 'stream_incomplete']);
    const silent = new Answer(0);
    silent.end();
    same(silent.phase, 'broken');
    const garbled = new Answer(0);
    same(garbled.take('{"choices":', 1), true);
    same(garbled.error.code, 'bad_stream');
    const stopped = new Answer(0);
    stopped.stop();
    stopped.end();
    same(stopped.phase, 'stopped');
  },
  'a request leaves out what is broken, empty or not set'() {
    const chat = {system: ' ', settings: {temperature: '0', top_p: '', top_k: 'x', seed: '7'},
                  messages: [{role: 'user', content: 'a'},
                             {role: 'assistant', content: 'b', phase: 'broken'},
                             {role: 'assistant', content: '', phase: 'stopped'},
                             {role: 'user', content: 'c'}]};
    const request = chatRequest(chat, 'm');
    same(request.messages, [{role: 'user', content: 'a'}, {role: 'user', content: 'c'}]);
    same([request.temperature, request.seed, 'top_p' in request, 'top_k' in request],
         [0, 7, false, false]);
  },
  'stored chats of the wrong shape are dropped, not trusted'() {
    for (const bad of ['', '{', 'null', '[]', '{"version":1,"chats":7}', '{"version":9}',
                       '{"version":1,"chats":[null,7,{"id":1},{"id":"a","messages":{}}]}']) {
      const store = new ChatStore(storage(bad));
      same([store.chats.length, store.current().messages], [1, []]);
    }
    const kept = new ChatStore(storage(JSON.stringify({version: 1, current: 'a', chats: [
      {id: 'a', messages: [{role: 'user', content: 'x'}, {role: 'root', content: 'y'}, null]}]})));
    same(kept.current().messages, [{role: 'user', content: 'x'}]);
  },
  'a thought at the start is told from the answer, also while it streams'() {
    same(splitThought('a <think>b</think>'), {thought: '', text: 'a <think>b</think>'});
    same(splitThought('<think>b'), {thought: 'b', text: ''});
    same(splitThought('<think>b</think>\n\nc'), {thought: 'b', text: 'c'});
  },
  'snippets carry a key only where the server wants one'() {
    const facts = {origin: 'http://h:1', model: 'm', coordinator: 'h:2'};
    const text = (hasKeys) => JSON.stringify(snippets({...facts, hasKeys}));
    same([text(false).includes('Authorization'), text(true).includes('Authorization')],
         [false, true]);
  },
  'numbers have units and a fitting precision'() {
    same([0, 1023, 1024, 30304665, 99 * 2 ** 30, 2 ** 40].map(bytes),
         ['0 B', '1023 B', '1.0 KiB', '28.9 MiB', '99.0 GiB', '1.0 TiB']);
    same([bytesOf('12897485', '30304665'), bytesOf(2 ** 26, 2 ** 34), bytesOf(0, 2 ** 34)],
         ['12.3 of 28.9 MiB', '64.0 MiB of 16.0 GiB', '0.0 of 16.0 GiB']);
    same([0, 9900, 61000, 3600000, 7.5e6, 3e8].map(duration),
         ['0.0 s', '9.9 s', '1 min 1 s', '1 h', '2 h 5 min', '3 days']);
    same([840, 12345, 182400, 1716400].map(micros), ['840 µs', '12.3 ms', '182 ms', '1.72 s']);
    same([percent(1, 1000), percent(1, 0), percent(999, 1000)], ['<1 %', '0 %', '99 %']);
    same([rate(0), rate(41.66), rate('7')], ['0 tok/s', '41.7 tok/s', '7.00 tok/s']);
    same([layers({begin: 0, end: 10}), layers({begin: 4, end: 5}), layers(null)],
         ['layers 0-9', 'layer 4', 'no layers']);
  },
  'the ring wraps and runs back, and no two cards overlap'() {
    for (const width of [280, 360, 700, 1000, 1900]) {
      for (const sizes of [[1], [1, 1, 1], [2, 2, 2], [1, 3, 2, 1, 1], new Array(17).fill(1)]) {
        const {stages, card} = layoutRing(sizes, width);
        const cards = stages.flatMap((stage) => stage.cards);
        cards.forEach((a, i) => cards.slice(i + 1).forEach((b) => {
          if (Math.abs(a.x - b.x) < card && Math.abs(a.y - b.y) < 54) throw new Error('overlap');
        }));
        if (cards.some((c) => c.x < 0 || c.x + card > width)) throw new Error(`outside ${width}`);
      }
    }
    const {stages, perRow} = layoutRing(new Array(6).fill(1), 640);
    same([perRow, stages[2].x === stages[3].x, stages[3].forward], [3, true, false]);
  },
  'stages, gaps and lonely layers follow from the shards'() {
    const shard = (node, begin, end, more) => ({
      model: 'm', node_id: node, layers: {begin, end}, is_head: begin === 0, node_lost: false,
      state: 'SHARD_STATE_LOADED', ...more});
    const state = {
      shards: [shard('c', 4, 8), shard('a', 0, 4), shard('b', 0, 4), shard('x', 4, 8,
                                                                          {node_lost: true})],
      nodes: [{node_id: 'a'}, {node_id: 'b'}, {node_id: 'c'}],
    };
    const stages = stagesOf(state, 'm');
    same(stages.map((s) => [s.layers.begin, s.isHead, s.shards.length]),
         [[0, true, 2], [4, false, 2]]);
    same(gapsOf({layers: 10}, stages), [{begin: 8, end: 10}]);
    same(lonelyLayers({node_id: 'a'}, state), []);
    same(lonelyLayers({node_id: 'c'}, state), [{begin: 4, end: 8}]);
    state.nodes[1].duty = 'NODE_DUTY_CORDONED';
    same(lonelyLayers({node_id: 'a'}, state), [{begin: 0, end: 4}]);
  },
  'sessions keep the links of their routes busy, and no others'() {
    const route = (...names) => names.map((name) => ({node_id: name}));
    const state = {sessions: [{model: 'm', route: route('a', 'b', 'c')},
                              {model: 'other', route: route('x', 'y')}, {model: 'm'}]};
    same([...busyLinks(state, 'm')], ['a>b', 'b>c', 'c>a']);
  },
  'what may be done with a node follows from its state and duty'() {
    const may = (state, duty) => Object.entries(nodeActions(
      {node_id: 'n', state, duty}, null)).filter(([, why]) => !why).map(([verb]) => verb);
    same(may('NODE_STATE_READY', 'NODE_DUTY_SERVING'), ['drain', 'cordon']);
    same(may('NODE_STATE_READY', 'NODE_DUTY_CORDONED'), ['drain', 'uncordon']);
    same(may('NODE_STATE_READY', 'NODE_DUTY_DRAINING'), ['uncordon']);
    same(may('NODE_STATE_LOST', 'NODE_DUTY_SERVING'), ['remove']);
  },
  'a problem line is taken apart into what, why and what helps'() {
    const state = {at_unix_ms: 0, nodes: [], models: [], shards: [], cluster: {problems: [
      'no model is loaded; shardctl model load PATH',
      'm: layers 0-3 have 1 of 2 replicas: b: no other node had room']}};
    const [first, second] = problemsOf(state, [], 'c:1');
    same([first.what, first.command], ['no model is loaded', 'shardctl model load PATH']);
    same([second.what, second.why],
         ['m', 'layers 0-3 have 1 of 2 replicas: b: no other node had room']);
  },
  'events match all words, in any case, newest first'() {
    const events = [{id: 1, level: 'info', kind: 'node_joined', text: 'A joined', session: '0'},
                    {id: 2, level: 'error', kind: 'node_lost', text: 'A is lost', node: 'A'}];
    const ids = (filter) => filterEvents(events, filter).map((event) => event.id);
    same(ids({level: 'info', text: ''}), [2, 1]);
    same(ids({level: 'warning', text: ''}), [2]);
    same(ids({level: 'info', text: 'a JOINED'}), [1]);
    same(ids({level: 'info', text: '0'}), []);
  },
  'a placement asks for a file or a model, in whole numbers'() {
    const fields = {model: '', path: ' /m.gguf ', shards: '2', replicas: '-1', context: '1e3',
                    sessions: ''};
    same(placementRequest(fields), {shards: 2, replicas: 0, context_tokens_max: 1000,
                                    sessions_max: 0, path: '/m.gguf'});
    same(placementRequest({...fields, path: ' '}), null);
    same(placementRequest({...fields, model: 'm'}).path, undefined);
  },
  'the parts of a lap add up to it'() {
    const {phases, lap} = breakdown({
      queued_us: '10', ttft_us: '110', total_us: '1110', stages: [{node_id: 'a'}, {node_id: 'b'}],
      timings: {laps: 10, lap_us: '900', stage_us: ['300', '400']}});
    same(phases.map((p) => p.end - p.begin), [10, 100, 1000]);
    same(lap.parts.map((p) => p.us), [30, 40, 20]);
    same(breakdown({total_us: '5', timings: {}}).lap, null);
  },
  'markdown knows its blocks'() {
    has('# A\nb', '<h3>A</h3>');
    has('a\nb\n\nc', '<p>');
    has('- a\n- b\n  - c\n', '<ul><li>a</li><li><span>b</span><ul><li>c</li></ul></li></ul>');
    has('3. a\n4. b', '<ol start="3"><li>a</li><li>b</li></ol>');
    has('> q', '<blockquote><p>');
    has('a\n\n---\n\nb', '<hr>');
    has('```py\nx < 1\n```', '<code>x &lt; 1</code>');
    has('```\nnot closed', '<code>not closed</code>');
    has('|a|b|\n|-|-:|\n|1|2|', '<td class="num">2</td>');
  },
  'markdown knows its marks, and leaves the rest alone'() {
    has('**b** *i* `c` ~~d~~', '<strong>b</strong> <em>i</em> <code>c</code> <del>d</del>');
    has('snake_case_name 2*3*4 a * b', 'snake_case_name');
    has('a * b * c', 'a * b * c');
    has('**not closed', '**not closed');
    has('\\*plain\\*', '*plain*');
    has('see https://a.example/x_(y).', 'href="https://a.example/x_(y"');
    has('`**` is bold', '<code>**</code> is bold');
  },
  'markdown lets no markup, no script and no foreign scheme through'() {
    for (const evil of ['<img src=x onerror=a()>', '[x](javascript:a())', '[x](data:text/html,a)',
                        '[x](vbscript:a)', '![x](javascript:a())', '<script>a()</script>',
                        '[x]( javascript:a())', '[x](\u0001javascript:a())',
                        '[x](//a.example)', '`<b>`', '|<b>|\n|-|\n|<i>|', '> <b>', '# <b>']) {
      const made = element(h('div', null, markdown(evil)));
      const bad = made.querySelectorAll('a, b, i, img, script, iframe, object, svg use[href^="j"]');
      if (bad.length) throw new Error(`${evil} made ${made.innerHTML}`);
    }
  },
  'markdown is fast and bounded on hostile text'() {
    const n = 20000;
    const hostile = ['*a '.repeat(n), '['.repeat(n), '[a]('.repeat(n), '`'.repeat(n),
                     '> '.repeat(n), '- '.repeat(n), '**'.repeat(n), '_a'.repeat(n),
                     '|'.repeat(n), '\n'.repeat(n), `${'  '.repeat(99)}- a\n`.repeat(200),
                     'http://'.repeat(n), '\\'.repeat(n), '``` '.repeat(n), '1. '.repeat(n)];
    for (const text of hostile) markdown(text);
  },
  'drawing keeps elements with their key, their focus and what was typed'() {
    const root = document.createElement('div');
    document.body.append(root);
    const row = (name) => h('input', {key: name, id: `t-${name}`});
    render(root, ['a', 'b', 'c'].map(row));
    const kept = root.children[1];
    kept.focus();
    kept.value = 'typed';
    render(root, ['b', 'c', 'd'].map(row));
    same([root.children[0] === kept, document.activeElement === kept, kept.value,
          root.children.length], [true, true, 'typed', 3]);
    const cleared = () => render(root, ['b', 'c'].map((key) => h('input', {key, value: ''})));
    cleared();
    kept.value = 'typed since';
    cleared();
    same(kept.value, '');
    render(root, h('p', {class: 'x', hidden: true, 'aria-busy': false}, 'a', null, false, 0));
    same(root.innerHTML, '<p class="x" hidden="" aria-busy="false">a0</p>');
    render(root, h('p', null, 'a'));
    same(root.innerHTML, '<p>a</p>');
    root.remove();
  },
};

// [[name, error or '']…]
export function run() {
  return Object.entries(tests).map(([name, test]) => {
    try {
      test();
      return [name, ''];
    } catch (error) {
      return [name, String(error.stack || error)];
    }
  });
}
