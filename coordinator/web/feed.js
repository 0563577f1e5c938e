// The cluster's state as it changes: one event stream, resumed where it broke off; when streams do
// not get through, polling. Owns the connection and nothing else; calls `onChange` for every news.

import {ApiError, call, open} from './api.js';
import {sseEvents} from './sse.js';

const kSilenceMs = 6000;      // The server speaks every 2 s; after three misses it is gone.
const kBackoffMs = [250, 500, 1000, 2000, 4000, 8000];
const kPollAfterFailures = 2; // Streams in a row that ended without an event.
const kPollMs = 2000;
const kTimelineMax = 1000;

export class Feed {
  constructor(onChange) {
    this.onChange = onChange;
    this.state = null;        // The newest snapshot.
    this.timeline = [];       // Rising ids.
    this.link = 'connecting'; // "live", "polling", "lost", "locked".
    this.error = null;        // Why it is not live: an ApiError.
    this.receivedAt = 0;      // Date.now() of `state`.
    this.clockSkewMs = 0;     // Our clock less the coordinator's.
    this.lastId = '';
    this.failures = 0;
    this.wake = null;
    this.stopped = false;
  }

  start() {
    this.run();
  }

  stop() {
    this.stopped = true;
    if (this.abort) this.abort.abort();
  }

  // Now, not after the backoff: a key was given, the network is back, a person asks.
  retry() {
    this.failures = 0;
    if (this.wake) this.wake();
  }

  // The coordinator's time, by its own clock.
  now() {
    return Date.now() - this.clockSkewMs;
  }

  ageMs() {
    return this.state ? Date.now() - this.receivedAt : Infinity;
  }

  async run() {
    while (!this.stopped) {
      let heard = false;
      try {
        heard = await this.stream();
        this.fail(new ApiError('The event stream ended.', {code: 'stream_ended'}));
      } catch (error) {
        heard = error.heard;
        this.fail(error.cause);
      }
      this.failures = heard ? 1 : this.failures + 1;
      if (this.link !== 'locked' && this.failures > kPollAfterFailures) await this.poll();
      await this.pause(kBackoffMs[Math.min(this.failures, kBackoffMs.length) - 1]);
    }
  }

  // One connection, from its start to its end. True: it brought something.
  async stream() {
    let heard = false;
    const abort = new AbortController();
    this.abort = abort;
    let timer = 0;
    const watch = () => {
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), kSilenceMs);
    };
    try {
      watch();
      const headers = {'Accept': 'text/event-stream'};
      if (this.lastId) headers['Last-Event-ID'] = this.lastId;
      const response = await open('GET', '/admin/v1/events', {headers, signal: abort.signal});
      for await (const event of sseEvents(response, watch)) {
        heard = true;
        this.take(event);
      }
      return heard;
    } catch (error) {
      const cause = error instanceof ApiError ? error
        : new ApiError(abort.signal.aborted ? `Nothing heard for ${kSilenceMs / 1000} s.`
                                            : 'The event stream broke off.', {code: 'stream_lost'});
      throw Object.assign(new Error('stream'), {heard, cause});
    } finally {
      clearTimeout(timer);
    }
  }

  take({event, data, id}) {
    let value;
    try {
      value = JSON.parse(data);
    } catch {
      return;
    }
    if (event === 'state') this.takeState(value, 'live');
    if (event === 'timeline') {
      if (id) this.lastId = id;
      const last = this.timeline[this.timeline.length - 1];
      if (last && value.id <= last.id) return;  // Sent again after a resume.
      this.timeline.push(value);
      if (this.timeline.length > kTimelineMax) this.timeline.shift();
      this.onChange();
    }
  }

  takeState(state, link) {
    this.state = state;
    this.receivedAt = Date.now();
    this.clockSkewMs = this.receivedAt - state.at_unix_ms;
    this.link = link;
    this.error = null;
    this.onChange();
  }

  fail(error) {
    this.link = error.status === 401 || error.status === 403 ? 'locked' : 'lost';
    this.error = error;
    this.onChange();
  }

  // A few plain requests instead of the stream, then the stream is tried again.
  async poll() {
    for (let i = 0; i < 5 && !this.stopped; ++i) {
      try {
        this.takeState(await call('GET', '/admin/v1/state'), 'polling');
      } catch (error) {
        this.fail(error);
        return;
      }
      await this.pause(kPollMs);
    }
  }

  pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
