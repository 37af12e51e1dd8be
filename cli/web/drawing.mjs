// Brings the page to a description (tree.mjs) with few changes: what stays the same keeps its focus, selection and
// place.

const SVG = "http://www.w3.org/2000/svg";
// What each element or text was last described as.
const described = new WeakMap();

function setAttributes(element, wanted) {
  const before = described.get(element)?.attributes ?? {};
  for (const name of Object.keys(before)) {
    if (!(name in wanted)) element.removeAttribute(name);
  }
  for (const [name, value] of Object.entries(wanted)) {
    if (name === "key" || value === before[name]) continue;
    if (value === null || value === undefined || value === false) {
      element.removeAttribute(name);
      continue;
    }
    // No text of a job can become a script, or a link to elsewhere.
    if (name.startsWith("on") || name === "style" || name === "src") throw new Error(`no attribute ${name}`);
    if (name === "href" && !String(value).startsWith("#")) throw new Error("a link stays on the page");
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

function make(node, inSvg) {
  if (typeof node !== "object") return document.createTextNode(String(node));
  const svg = inSvg || node.tag === "svg";
  const element = svg ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  update(element, node, svg);
  return element;
}

function update(place, node, inSvg) {
  if (typeof node !== "object") {
    if (place.data !== String(node)) place.data = String(node);
    return;
  }
  setAttributes(place, node.attributes);
  described.set(place, node);
  drawChildren(place, node.children, inSvg);
}

const keyOf = (place) => described.get(place)?.attributes.key;

function fits(place, node) {
  if (typeof node !== "object") return place.nodeType === Node.TEXT_NODE;
  return described.get(place)?.tag === node.tag && keyOf(place) === node.attributes.key;
}

function drawChildren(parent, nodes, inSvg) {
  const kept = new Map();
  for (const place of parent.childNodes) {
    const key = keyOf(place);
    if (key !== undefined) kept.set(key, place);
  }
  const wanted = new Set(nodes.map((node) => node.attributes?.key).filter((key) => key !== undefined));
  let at = parent.firstChild;
  for (const node of nodes) {
    // What is not wanted any more goes first, so that its later siblings need not be moved.
    while (at !== null && keyOf(at) !== undefined && !wanted.has(keyOf(at))) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
    const key = node.attributes?.key;
    const place = key !== undefined ? kept.get(key) : at;
    if (place !== undefined && place !== null && fits(place, node)) {
      if (place === at)
        at = at.nextSibling;
      else
        parent.insertBefore(place, at);
      update(place, node, inSvg || node.tag === "svg");
    } else {
      parent.insertBefore(make(node, inSvg), at);
    }
  }
  while (at !== null) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

// Makes `nodes` the children of `parent`, which nothing else may change.
export function draw(parent, nodes) {
  const focused = document.activeElement;
  drawChildren(
      parent, [nodes].flat(Infinity).filter((node) => node !== null && node !== undefined && node !== false),
      parent.namespaceURI === SVG);
  // An element that was moved has lost the focus.
  if (focused !== document.activeElement && focused?.isConnected && parent.contains(focused)) {
    focused.focus({preventScroll: true});
  }
}
