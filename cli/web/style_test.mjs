import assert from "node:assert";
import fs from "node:fs";
import test from "node:test";

const style = fs.readFileSync(new URL("style.css", import.meta.url), "utf8");
const coloursIn = (text) =>
    Object.fromEntries([...text.matchAll(/--([a-z-]+): (#[0-9a-f]{6});/g)].map(([, name, value]) => [name, value]));
const [light, dark] = [...style.matchAll(/:root \{([^}]*)\}/g)].map(([, text]) => coloursIn(text));

// As the Web Content Accessibility Guidelines define it.
function luminance(colour) {
  const [r, g, b] = [1, 3, 5]
                        .map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
                        .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

const TEXTS = [
  ["text", "back"], ["text", "card"], ["text", "bad-back"], ["text", "warn-back"], ["text", "ok-back"],
  ["soft", "back"], ["soft", "card"], ["soft", "bad-back"], ["link", "back"], ["link", "card"], ["link", "bad-back"],
  ["bad", "back"], ["bad", "card"], ["bad", "bad-back"], ["warn", "back"], ["warn", "warn-back"], ["ok", "ok-back"]
];
const SHAPES = [["bar", "back"], ["bad", "back"], ["progress", "card"], ["progress", "bad-back"], ["link", "card"]];

test("contrast_BothModes_IsEnoughToRead", () => {
  assert.strictEqual(contrast("#000000", "#ffffff").toFixed(1), "21.0");
  for (const [mode, colours] of [["light", light], ["dark", dark]]) {
    for (const [pairs, least] of [[TEXTS, 4.5], [SHAPES, 3]]) {
      for (const [front, back] of pairs) {
        const found = contrast(colours[front], colours[back]);
        assert.ok(found >= least, `${mode}: ${front} on ${back} is ${found.toFixed(2)}`);
      }
    }
  }
});

test("colours_EachThatIsUsed_HasBothModes", () => {
  assert.deepStrictEqual(Object.keys(light).sort(), Object.keys(dark).sort());
  for (const [, name] of style.matchAll(/var\(--([a-z-]+)\)/g)) assert.ok(name in light, name);
});
