// Numbers as people read them, always with their unit. Pure.

// Protobuf's JSON has 64-bit integers as strings.
export function num(value) {
  const n = Number(value);
  return Number.isFinite(n) ? n : 0;
}

export function count(value) {
  return num(value).toLocaleString('en-US', {maximumFractionDigits: 0});
}

export function plural(value, word, words) {
  return `${count(value)} ${num(value) === 1 ? word : words || `${word}s`}`;
}

// Three digits that matter: 1.23, 12.3, 123.
function digits(value) {
  const size = Math.abs(value);
  if (size >= 100) return count(value);
  if (size >= 10) return value.toFixed(1);
  return value.toFixed(2);
}

export function bytes(value) {
  let n = num(value);
  if (n < 1024) return `${n} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = -1;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    ++unit;
  }
  return `${n >= 99.95 ? n.toFixed(0) : n.toFixed(1)} ${units[unit]}`;
}

// "12.3 of 28.9 MiB": one unit for both, unless the part would vanish in it.
export function bytesOf(done, total) {
  const whole = bytes(total);
  const unit = whole.slice(whole.indexOf(' ') + 1);
  const scale = {B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, PiB: 2 ** 50}[unit];
  const part = num(done) / scale;
  if (part > 0 && part < 1) return `${bytes(done)} of ${whole}`;
  return `${unit === 'B' || part >= 99.95 ? part.toFixed(0) : part.toFixed(1)} of ${whole}`;
}

export function percent(part, whole) {
  if (num(whole) <= 0) return '0 %';
  const share = (100 * num(part)) / num(whole);
  return `${share > 0 && share < 1 ? '<1' : Math.floor(share)} %`;
}

// A length of time for people, coarser the longer it is.
export function duration(ms) {
  const t = Math.max(0, num(ms));
  if (t < 10000) return `${(t / 1000).toFixed(1)} s`;
  const s = Math.floor(t / 1000);
  if (s < 60) return `${s} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return s % 60 ? `${m} min ${s % 60} s` : `${m} min`;
  const hours = Math.floor(m / 60);
  if (hours < 48) return m % 60 ? `${hours} h ${m % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} days`;
}

// A length of time for measuring.
export function micros(us) {
  const t = num(us);
  if (t < 1000) return `${t.toFixed(0)} µs`;
  if (t < 1000000) return `${digits(t / 1000)} ms`;
  return `${digits(t / 1000000)} s`;
}

export function rate(tokensPerSecond) {
  const value = num(tokensPerSecond);
  return `${value > 0 ? digits(value) : '0'} tok/s`;
}

// As the command line has it: both ends inclusive.
export function layers(range) {
  if (!range || num(range.end) <= num(range.begin)) return 'no layers';
  const last = num(range.end) - 1;
  return num(range.begin) === last ? `layer ${last}` : `layers ${num(range.begin)}-${last}`;
}

export function clockTime(unixMs) {
  return new Date(unixMs).toLocaleTimeString('en-GB');
}

export function fullTime(unixMs) {
  return new Date(unixMs).toISOString().replace('T', ' ').replace('Z', ' UTC');
}
