// Server-sent events out of a fetch: EventSource can send neither a key nor a body. Pure but for
// the reader it is given.

const kEventCharsMax = 16 * 1024 * 1024;  // A peer that never ends an event is no event source.

// Feed it text as it comes; it returns the events that are complete: {event, data, id}.
export class SseParser {
  constructor() {
    this.rest = '';
    this.reset();
  }

  reset() {
    this.event = '';
    this.data = [];
    this.id = undefined;
    this.size = 0;
  }

  push(chunk) {
    // A CR at the end may be half of a CRLF: it waits for what follows.
    let text = this.rest + chunk;
    const out = [];
    let start = 0;
    for (;;) {
      const match = /\r\n|\n|\r(?!$)/g;
      match.lastIndex = start;
      const end = match.exec(text);
      if (!end) break;
      this.line(text.slice(start, end.index), out);
      start = end.index + end[0].length;
    }
    this.rest = text.slice(start);
    if (this.rest.length + this.size > kEventCharsMax) throw new Error('an event without end');
    return out;
  }

  line(line, out) {
    if (line === '') {
      if (this.data.length) {
        out.push({event: this.event || 'message', data: this.data.join('\n'), id: this.id});
      }
      this.reset();
      return;
    }
    if (line.startsWith(':')) return;
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'data') {
      this.data.push(value);
      this.size += value.length;
    } else if (field === 'event') {
      this.event = value;
    } else if (field === 'id') {
      this.id = value;
    }
  }
}

// Yields the events of a response until it ends; throws when the connection breaks. `onBytes` is
// told of every arrival, comments included: they are how a silent stream shows that it lives.
export async function* sseEvents(response, onBytes) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new SseParser();
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      if (onBytes) onBytes();
      yield* parser.push(decoder.decode(value, {stream: true}));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
