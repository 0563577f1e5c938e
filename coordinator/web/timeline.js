// What happened, newest first; filtered by level and by text.

import {h, icon} from './dom.js';
import {clockTime, count, fullTime} from './format.js';

const kShown = 200;
const kLevels = {info: 0, warning: 1, error: 2};
const kIcons = {info: 's-spare', warning: 's-cordoned', error: 's-failed'};
const kTones = {info: 'idle', warning: 'warn', error: 'bad'};

// Those that a person asked for, newest first. Every word of `text` must be found.
export function filterEvents(events, {level, text}) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return events.filter((event) => {
    if ((kLevels[event.level] || 0) < kLevels[level]) return false;
    const all = `${event.text} ${event.kind} ${event.node || ''} ${event.model || ''} ` +
                `${event.session === '0' ? '' : event.session || ''}`;
    return words.every((word) => all.toLowerCase().includes(word));
  }).reverse();
}

export function timelinePanel(app) {
  const filter = app.timelineFilter;
  const found = filterEvents(app.feed.timeline, filter);
  return h('section', {class: 'panel timeline', 'aria-labelledby': 'timeline-title'},
    h('header', {class: 'panel-head'}, h('h2', {id: 'timeline-title'}, 'Events'),
      h('span', {class: 'dim'}, found.length === app.feed.timeline.length
        ? count(found.length) : `${count(found.length)} of ${count(app.feed.timeline.length)}`)),
    h('div', {class: 'filters'},
      h('select', {'aria-label': 'Least level', value: filter.level,
                   onchange: (e) => app.setFilter({level: e.target.value})},
        h('option', {value: 'info'}, 'All'), h('option', {value: 'warning'}, 'Warnings'),
        h('option', {value: 'error'}, 'Errors')),
      h('input', {type: 'search', id: 'event-filter', placeholder: 'Node or word',
                  'aria-label': 'Only events with these words', value: filter.text,
                  oninput: (e) => app.setFilter({text: e.target.value})})),
    found.length === 0
      ? h('p', {class: 'dim none'}, app.feed.timeline.length ? 'No event matches.'
                                                             : 'Nothing has happened yet.')
      : h('ol', {class: 'events', tabindex: '0', 'aria-label': 'Events, newest first'},
          found.slice(0, kShown).map((event) => h('li', {
            key: event.id, class: `tone-${kTones[event.level] || 'idle'}`},
            h('time', {datetime: new Date(event.at_unix_ms).toISOString(),
                       title: fullTime(event.at_unix_ms)}, clockTime(event.at_unix_ms)),
            icon(kIcons[event.level] || 's-spare', event.level), h('span', null, event.text)))));
}
