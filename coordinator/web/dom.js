// A small virtual DOM. A view is a function of state that returns a tree of h(); render() makes the
// page show it and touches only what differs, so focus, selection and scroll outlive an update.
//
// Text becomes text nodes and attributes become attributes: no string is ever parsed as markup.

const SVG = 'http://www.w3.org/2000/svg';

// h('a', {href, class, onclick, key, ref, style: {…}}, child, …). Children are nodes, strings,
// numbers, arrays of those, or nothing (null and false hold their place). In an array every
// node wants a key that is its own among its siblings. `ref` is called once with the element.
export function h(tag, props, ...children) {
  const out = [];
  flatten(children, out);
  return {tag, props: props || {}, key: props ? props.key : undefined, children: out, el: null};
}

function flatten(children, out) {
  for (const child of children) {
    if (Array.isArray(child)) flatten(child, out);
    else if (child === null || child === undefined || child === false) out.push(text(''));
    else if (typeof child === 'object') out.push(child);
    else out.push(text(String(child)));
  }
}

function text(value) {
  return {tag: '', text: value, key: undefined, el: null};
}

// Makes the children of `root` those of `nodes`. Only render() may change what is below `root`.
export function render(root, ...nodes) {
  const after = [];
  flatten(nodes, after);
  if (!root.vnodes) root.replaceChildren();  // What the document came with.
  patchChildren(root, root.vnodes || [], after, root.namespaceURI === SVG);
  root.vnodes = after;
}

// A fresh element of its own, for dialogs and tests.
export function element(node) {
  return create(node, false);
}

function create(node, isSvg) {
  if (!node.tag) {
    node.el = document.createTextNode(node.text);
    return node.el;
  }
  const svg = isSvg || node.tag === 'svg';
  node.el = svg ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  for (const child of node.children) node.el.append(create(child, svg));
  for (const name of Object.keys(node.props)) setProp(node.el, name, node.props[name], undefined);
  if (node.props.ref) node.props.ref(node.el);
  return node.el;
}

// A tree that is handed in again, the very same object, is taken as unchanged.
function patch(old, node, isSvg) {
  if (old === node) return;
  node.el = old.el;
  if (!node.tag) {
    if (old.text !== node.text) node.el.data = node.text;
    return;
  }
  const svg = isSvg || node.tag === 'svg';
  patchChildren(node.el, old.children, node.children, svg);
  for (const name of Object.keys(old.props)) {
    if (!(name in node.props)) setProp(node.el, name, undefined, old.props[name]);
  }
  for (const name of Object.keys(node.props)) {
    setProp(node.el, name, node.props[name], old.props[name]);
  }
}

function patchChildren(parent, before, after, isSvg) {
  const keyed = new Map();
  const rest = [];
  for (const old of before) {
    if (old.key === undefined) rest.push(old);
    else keyed.set(old.key, old);
  }
  const kept = new Set();
  let index = 0;
  for (const node of after) {
    const old = node.key === undefined ? rest[index++] : keyed.get(node.key);
    if (old && old.tag === node.tag && !kept.has(old)) {
      kept.add(old);
      patch(old, node, isSvg);
    } else {
      create(node, isSvg);
    }
  }
  // First what goes, so that what stays need not move (a moved element loses its focus).
  for (const old of before) {
    if (!kept.has(old)) old.el.remove();
  }
  let place = parent.firstChild;
  for (const node of after) {
    if (node.el === place) place = place.nextSibling;
    else parent.insertBefore(node.el, place);
  }
}

const kProperties = new Set(['value', 'checked']);

function setProp(el, name, value, old) {
  if (name === 'key' || name === 'ref') return;
  if (name.startsWith('on')) {
    el[name] = value || null;
  } else if (name === 'style') {
    setStyle(el, value || {}, old || {});
  } else if (kProperties.has(name)) {
    // Against the element, not against what was drawn before: a person may have typed since.
    const wanted = value === undefined ? '' : value;
    if (el[name] !== wanted) el[name] = wanted;
  } else if (value === old) {
    return;
  } else if (value === null || value === undefined || (value === false && !isAria(name))) {
    el.removeAttribute(name);
  } else {
    el.setAttribute(name, value === true && !isAria(name) ? '' : String(value));
  }
}

function isAria(name) {
  return name.startsWith('aria-');
}

// Through the object model, which a content security policy without inline styles allows.
function setStyle(el, style, old) {
  for (const name of Object.keys(old)) {
    if (!(name in style)) el.style.removeProperty(name);
  }
  for (const name of Object.keys(style)) {
    if (style[name] !== old[name]) el.style.setProperty(name, style[name]);
  }
}

// One of the symbols of icons.svg; decoration unless `label` says what it means.
export function icon(name, label) {
  const props = {class: `icon icon-${name}`, viewBox: '0 0 16 16', focusable: 'false'};
  if (label) Object.assign(props, {role: 'img', 'aria-label': label});
  else props['aria-hidden'] = 'true';
  return h('svg', props, h('use', {href: `/assets/icons.svg#${name}`}));
}
