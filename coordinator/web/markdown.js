// Markdown of an answer as a tree of h(). A model's text is foreign text: nothing in it becomes
// markup but what is listed here, links go to the web only, images are links. Linear in the text,
// bounded in depth. Pure.

import {h} from './dom.js';
import {copyButton} from './dialogs.js';

const kDepthMax = 6;

export function markdown(text) {
  return blocks(text.replace(/\r\n?/g, '\n').split('\n'), 0);
}

function blocks(lines, depth) {
  const out = [];
  const add = (node) => out.push(Object.assign(node, {key: out.length}));
  let i = 0;
  while (i < lines.length) {
    const line = lines[i];
    const fence = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(line);
    if (!line.trim()) {
      ++i;
    } else if (fence) {
      const end = fenceEnd(lines, i + 1, fence[1]);
      add(codeBlock(lines.slice(i + 1, end).join('\n'), fence[2]));
      i = end + 1;
    } else if (/^#{1,6} /.test(line)) {
      const level = line.indexOf(' ');
      // The page has its own h1 and h2.
      add(h(`h${Math.min(6, level + 2)}`, null, inline(line.slice(level + 1), 0)));
      ++i;
    } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
      add(h('hr'));
      ++i;
    } else if (/^ {0,3}>/.test(line) && depth < kDepthMax) {
      const end = runEnd(lines, i, (l) => /^ {0,3}>/.test(l));
      add(h('blockquote', null, blocks(lines.slice(i, end).map(
        (l) => l.replace(/^ {0,3}> ?/, '')), depth + 1)));
      i = end;
    } else if (itemOf(line) && depth < kDepthMax) {
      const end = listEnd(lines, i);
      add(list(lines.slice(i, end), depth));
      i = end;
    } else if (i + 1 < lines.length && line.includes('|') && isTableRule(lines[i + 1])) {
      const end = runEnd(lines, i + 2, (l) => l.includes('|'));
      add(table(lines.slice(i, end)));
      i = end;
    } else {
      const end = Math.max(i + 1, runEnd(lines, i, isPlain));
      add(h('p', null, paragraph(lines.slice(i, end))));
      i = end;
    }
  }
  return out;
}

function isPlain(line) {
  return line.trim() !== '' && !/^ {0,3}(`{3,}|~{3,}|>|#{1,6} )/.test(line) && !itemOf(line);
}

function runEnd(lines, i, is) {
  while (i < lines.length && is(lines[i])) ++i;
  return i;
}

// The closing fence, or the end: an answer that still streams shows its code from the first line.
function fenceEnd(lines, i, fence) {
  while (i < lines.length) {
    const line = lines[i].trim();
    if (line.startsWith(fence) && !line.replaceAll(fence[0], '')) return i;
    ++i;
  }
  return i;
}

function codeBlock(code, language) {
  return h('div', {class: 'code'},
    h('div', {class: 'code-head'}, h('span', null, language || 'text'),
      copyButton(() => code, 'Copy code')),
    h('pre', {tabindex: '0', 'aria-label': `Code${language ? `, ${language}` : ''}`},
      h('code', null, code)));
}

// "- x", "12. x" with up to nine digits: {indent, ordered, start, text}.
function itemOf(line) {
  const match = /^( *)([-*+]|\d{1,9}[.)])( +)(?=\S)/.exec(line);
  if (!match) return null;
  const ordered = match[2].length > 1;
  return {indent: match[1].length, ordered, start: ordered ? parseInt(match[2], 10) : 0,
          width: match[0].length};
}

function listEnd(lines, i) {
  const first = itemOf(lines[i]);
  ++i;
  while (i < lines.length) {
    const item = itemOf(lines[i]);
    const indent = lines[i].length - lines[i].trimStart().length;
    if (!lines[i].trim()) {
      const next = lines[i + 1];
      if (next === undefined || !(itemOf(next) || /^ {2,}\S/.test(next))) return i;
    } else if (item ? item.indent < first.indent ||
                      (item.indent === first.indent && item.ordered !== first.ordered)
                    : indent <= first.indent && (!isPlain(lines[i]) || !lines[i - 1].trim())) {
      return i;
    }
    ++i;
  }
  return i;
}

function list(lines, depth) {
  const first = itemOf(lines[0]);
  const items = [];
  for (const line of lines) {
    const item = itemOf(line);
    if (item && item.indent <= first.indent + 1) items.push([line.slice(item.width)]);
    else items[items.length - 1].push(dedent(line, first.width));
  }
  const props = first.ordered && first.start !== 1 ? {start: String(first.start)} : null;
  return h(first.ordered ? 'ol' : 'ul', props, items.map((item, i) => h('li', {key: i},
    item.length === 1 ? inline(item[0], 0) : tight(blocks(item, depth + 1)))));
}

// A leading paragraph of an item needs no block of its own.
function tight(nodes) {
  return nodes.map((node, i) => (i === 0 && node.tag === 'p'
    ? h('span', {key: 'first'}, node.children) : node));
}

function dedent(line, width) {
  const indent = line.length - line.trimStart().length;
  return line.slice(Math.min(indent, width));
}

function isTableRule(line) {
  return line.includes('-') && /^[\s|:-]+$/.test(line) && line.includes('|');
}

function cells(line) {
  return line.trim().replace(/^\|/, '').replace(/\|$/, '').split('|').map((cell) => cell.trim());
}

function table(lines) {
  const head = cells(lines[0]);
  const sides = cells(lines[1]).map((rule) => (rule.endsWith(':') ? 'num' : ''));
  const row = (tag, values) => head.map((_, i) => h(tag, {key: i, class: sides[i] || ''},
                                                    inline(values[i] || '', 0)));
  return h('div', {class: 'table-scroll', tabindex: '0', role: 'group', 'aria-label': 'Table'},
    h('table', null,
      h('thead', null, h('tr', null, row('th', head))),
      h('tbody', null, lines.slice(2).map((line, i) => h('tr', {key: i},
        row('td', cells(line)))))));
}

function paragraph(lines) {
  if (lines.length === 1) return inline(lines[0].trim(), 0);
  return lines.flatMap((line, i) => {
    const last = i + 1 === lines.length;
    const hard = !last && / {2,}$/.test(line);
    return [h('span', {key: i}, inline(line.trim(), 0), last || hard ? '' : ' '),
            hard ? h('br', {key: `br${i}`}) : null];
  });
}

const kMarks = [['**', 'strong'], ['__', 'strong'], ['~~', 'del'], ['*', 'em'], ['_', 'em']];

// Characters that mean something inside a line, until the end of `text`.
function inline(text, depth) {
  const out = [];
  const next = new Map();  // Where each closer comes next, so that every stretch is searched once.
  let plain = '';
  let i = 0;
  const flush = () => {
    if (plain) out.push(plain);
    plain = '';
  };
  const find = (closer, from) => {
    const known = next.get(closer);
    if (known !== undefined && (known < 0 || known >= from)) return known;
    const at = text.indexOf(closer, from);
    next.set(closer, at);
    return at;
  };
  const push = (node) => {
    flush();
    out.push(Object.assign(node, {key: `n${out.length}`}));
  };
  while (i < text.length) {
    const c = text[i];
    if (c === '\\' && /[!-/:-@[-`{-~]/.test(text[i + 1] || '')) {
      plain += text[i + 1];
      i += 2;
      continue;
    }
    const special = c === '`' ? codeSpan(text, i, find)
      : c === '[' || c === '!' ? link(text, i, find, depth)
      : c === 'h' ? bareLink(text, i)
      : '*_~'.includes(c) && depth < kDepthMax ? emphasis(text, i, find, depth) : null;
    if (special) {
      push(special.node);
      i = special.end;
    } else {
      plain += c;
      ++i;
    }
  }
  flush();
  return out;
}

function codeSpan(text, i, find) {
  const ticks = /^`+/.exec(text.slice(i, i + 32))[0];
  const end = find(ticks, i + ticks.length);
  if (end < 0) return null;
  return {node: h('code', null, text.slice(i + ticks.length, end).trim()), end: end + ticks.length};
}

function emphasis(text, i, find, depth) {
  for (const [mark, tag] of kMarks) {
    if (!text.startsWith(mark, i)) continue;
    const begin = i + mark.length;
    if (/\s|^$/.test(text[begin] || '')) continue;
    if (mark[0] === '_' && /\w/.test(text[i - 1] || '')) continue;
    const end = find(mark, begin + 1);
    if (end < 0 || /\s/.test(text[end - 1])) continue;
    if (mark[0] === '_' && /\w/.test(text[end + mark.length] || '')) continue;
    return {node: h(tag, null, inline(text.slice(begin, end), depth + 1)), end: end + mark.length};
  }
  return null;
}

function link(text, i, find, depth) {
  const begin = text[i] === '!' ? i + 1 : i;
  if (text[begin] !== '[' || depth >= kDepthMax) return null;
  const middle = find('](', begin + 1);
  if (middle < 0) return null;
  const end = find(')', middle + 2);
  if (end < 0) return null;
  const label = text.slice(begin + 1, middle);
  const href = webAddress(text.slice(middle + 2, end).trim().split(/\s/)[0]);
  if (!href || label.includes('[')) return null;
  return {node: anchor(href, label ? inline(label, kDepthMax) : href), end: end + 1};
}

function bareLink(text, i) {
  const match = /^https?:\/\/[^\s<>"'`|\\^{}]{1,2000}/.exec(text.slice(i, i + 2010));
  if (!match || /\w/.test(text[i - 1] || '')) return null;
  const address = match[0].replace(/[.,;:!?)\]*_~]+$/, '');
  const href = webAddress(address);
  return href ? {node: anchor(href, address), end: i + address.length} : null;
}

// What a link may lead to; '' for everything else, scripts first of all.
function webAddress(address) {
  try {
    const url = new URL(address);
    return ['https:', 'http:', 'mailto:'].includes(url.protocol) ? url.href : '';
  } catch {
    return '';
  }
}

function anchor(href, children) {
  return h('a', {href, target: '_blank', rel: 'noopener noreferrer nofollow'}, children);
}
