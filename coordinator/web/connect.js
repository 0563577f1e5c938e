// What to paste: into clients that want to talk to this cluster, and on machines that join it.

import {copyButton} from './dialogs.js';
import {h} from './dom.js';

// [{title, note, text}…]. Pure.
export function snippets({origin, model, coordinator, hasKeys}) {
  const key = hasKeys ? 'YOUR_API_KEY' : 'none';
  const auth = hasKeys ? ` \\\n  -H 'Authorization: Bearer ${key}'` : '';
  const clients = [
    {title: 'curl', note: 'Streams the answer as server-sent events.', text:
`curl -N ${origin}/v1/chat/completions${auth} \\
  -H 'Content-Type: application/json' \\
  -d '{"model": "${model}", "stream": true,
       "messages": [{"role": "user", "content": "Hello"}]}'`},
    {title: 'Python, openai package', note: 'pip install openai', text:
`from openai import OpenAI

client = OpenAI(base_url="${origin}/v1", api_key="${key}")
stream = client.chat.completions.create(
    model="${model}",
    messages=[{"role": "user", "content": "Hello"}],
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)`},
    {title: 'Environment', note: 'Read by most programs that speak the OpenAI API.', text:
`export OPENAI_BASE_URL=${origin}/v1
export OPENAI_API_KEY=${key}`},
    {title: 'JavaScript, openai package', note: 'npm install openai', text:
`import OpenAI from 'openai';

const client = new OpenAI({baseURL: '${origin}/v1', apiKey: '${key}'});
const answer = await client.chat.completions.create({
  model: '${model}',
  messages: [{role: 'user', content: 'Hello'}],
});
console.log(answer.choices[0].message.content);`},
  ];
  const operators = [
    {title: 'Add a node', note: 'On each machine. The data directory holds the node’s id: one ' +
     'for each node, and the same one at every start.', text:
`shardline-node --coordinator ${coordinator} \\
  --listen 0.0.0.0:7080 \\
  --data-dir /var/lib/shardline-node`},
    {title: 'Operate from a terminal', note: 'Everything this page does, shardctl does.', text:
`export SHARDLINE_ENDPOINT=${coordinator}
shardctl status
shardctl node list -o wide`},
    {title: 'State as text', note: 'No more than curl is needed.', text:
`curl ${origin}/status.txt${hasKeys ? ` -H 'Authorization: Bearer ${key}'` : ''}`},
  ];
  return {clients, operators};
}

export function connectView(app) {
  const {chat, feed} = app;
  const model = chat.model() ? chat.model().id
    : feed.state && feed.state.models.length ? feed.state.models[0].name : 'MODEL';
  const {clients, operators} = snippets({
    origin: location.origin, model, coordinator: app.grpcAddress(), hasKeys: app.hasKeys(),
  });
  return h('div', {class: 'connect'},
    h('h1', {class: 'hidden'}, 'Connect'),
    h('section', {class: 'panel'},
      h('header', {class: 'panel-head'}, h('h2', null, 'Clients'),
        h('span', {class: 'dim'}, `Base URL ${location.origin}/v1`)),
      clients.map(snippet)),
    h('section', {class: 'panel'},
      h('header', {class: 'panel-head'}, h('h2', null, 'Machines and operators'),
        h('span', {class: 'dim'}, app.grpcIsGuessed()
          ? `${app.grpcAddress()} is the default address of --listen; put yours in its place`
          : `The coordinator listens for nodes at ${app.grpcAddress()}`)),
      operators.map(snippet)));
}

function snippet({title, note, text}) {
  return h('section', {key: title, class: 'snippet'},
    h('header', null, h('h3', null, title), h('p', {class: 'dim'}, note),
      copyButton(() => text, `Copy: ${title}`)),
    h('div', {class: 'code'}, h('pre', {tabindex: '0', 'aria-label': title},
                                h('code', null, text))));
}
