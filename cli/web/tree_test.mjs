import assert from "node:assert";
import test from "node:test";

import {coded, findAll, h, textOf} from "./tree.mjs";

test("h_Children_AreFlatAndWithoutGaps", () => {
  const node = h("p", null, "a", [null, ["b", false]], undefined, 0, h("b", {}, "c"));
  assert.deepStrictEqual(node.children.slice(0, 3), ["a", "b", 0]);
  assert.strictEqual(textOf([node, "d"]), "ab0cd");
  assert.strictEqual(findAll(node, "b").length, 1);
  assert.deepStrictEqual(findAll([h("i", {class: "x y"}), h("i", {class: "xy"})], "i", "y").length, 1);
});

test("coded_TextBetweenBackticks_IsCode", () => {
  const node = h("p", {}, coded("Run `cairn list` or `cairn show`."));
  assert.strictEqual(textOf(node), "Run cairn list or cairn show.");
  assert.deepStrictEqual(findAll(node, "code").map(textOf), ["cairn list", "cairn show"]);
  assert.deepStrictEqual(coded("a single ` stays"), ["a single ` stays"]);
  assert.deepStrictEqual(coded(""), []);
});
