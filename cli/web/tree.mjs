// Describes parts of the page as plain values, so that what is shown can be tested without a browser.

// Returns the description of an element. `attributes.key` names it among its siblings; it is no attribute of the page.
// Children are descriptions and texts, also in arrays; null, undefined and false are left out.
export function h(tag, attributes, ...children) {
  return {
    tag,
    attributes: attributes ?? {},
    children: children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  };
}

// Returns a text with what stands between backticks, as commands do in messages, as code.
export function coded(text) {
  const parts = String(text).split("`");
  if (parts.length % 2 === 0) return [text];
  return parts.map((part, i) => (i % 2 === 1 ? h("code", {}, part) : part)).filter((part) => part !== "");
}

// Returns all text of a description, or of several.
export function textOf(node) {
  if (Array.isArray(node)) return node.map(textOf).join("");
  return typeof node === "object" && node !== null ? node.children.map(textOf).join("") : String(node ?? "");
}

// Returns the descriptions with this tag, and with this class if one is given, at any depth.
export function findAll(node, tag, className) {
  if (Array.isArray(node)) return node.flatMap((each) => findAll(each, tag, className));
  if (typeof node !== "object" || node === null) return [];
  const classes = String(node.attributes.class ?? "").split(" ");
  const own = node.tag === tag && (className === undefined || classes.includes(className));
  return [...(own ? [node] : []), ...findAll(node.children, tag, className)];
}
