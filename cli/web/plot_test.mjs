import assert from "node:assert";
import test from "node:test";

import {axisEnd, labelled, plot} from "./plot.mjs";
import {findAll, textOf} from "./tree.mjs";

const save = (step, value, failed = false) => ({key: `${step} 1`, step, value, failed});
const drawn = (saves, chosen = null) =>
    plot({name: "Duration", saves, valueOf: (each) => each.value, format: (value) => `${value} s`, chosen});

test("axisEnd_AnyValue_IsRoundAndNotBelow", () => {
  assert.deepStrictEqual(
      [0, 0.7, 1, 1.1, 9.5, 10, 11, 45, 99, 101].map((value) => axisEnd(value)),
      [1, 0.8, 1, 2, 10, 10, 20, 50, 100, 200]);
  assert.deepStrictEqual(
      [1, 1000, 1025, 300 * 1024, 2 ** 40].map((value) => axisEnd(value, 1024)), [1, 1024, 2048, 400 * 1024, 2 ** 40]);
  for (let value = 1e-6; value < 1e15; value *= 1.37) {
    for (const base of [10, 1024]) {
      const end = axisEnd(value, base);
      assert.ok(end >= value * (1 - 1e-9) && end <= 2.51 * value, `${value} ${end}`);
    }
  }
});

test("labelled_ManyBars_NamesTheFirstAndTheLast", () => {
  assert.deepStrictEqual(labelled(3, 4), [0, 1, 2]);
  assert.deepStrictEqual(labelled(100, 4), [0, 33, 66, 99]);
  assert.deepStrictEqual(labelled(0, 4), []);
});

test("plot_Saves_AreBarsOfTheirHeights", () => {
  const bars = findAll(drawn([save(100, 5), save(200, 10), save(300, 0)]), "rect", "bar")
                   .map((bar) => Number(bar.attributes.height));
  assert.strictEqual(bars.length, 3);
  assert.ok(Math.abs(bars[1] - 2 * bars[0]) < 0.2, "ten is twice five");
  assert.strictEqual(bars[2], 1, "nothing is still a line");
});

test("plot_AFailedSave_IsMarkedByMoreThanItsColour", () => {
  const figure = drawn([save(100, 5), save(200, 3, true), save(300, null, true)]);
  assert.strictEqual(findAll(figure, "rect", "failed").length, 1);
  assert.strictEqual(findAll(figure, "text", "mark").length, 2);
  assert.strictEqual(textOf(findAll(figure, "text", "mark")[0]), "×");
});

test("plot_EachSave_CanBePointedAt", () => {
  const saves = Array.from({length: 100}, (_, i) => save(i, i));
  const figure = drawn(saves, "7 1");
  assert.deepStrictEqual(
      findAll(figure, "rect", "place").map((place) => place.attributes["data-save"]), saves.map((each) => each.key));
  const chosen = findAll(figure, "g", "chosen");
  assert.deepStrictEqual(chosen.map((group) => group.attributes.key), ["7 1"]);
  const [bars] = findAll(figure, "div", "bars");
  assert.strictEqual(bars.attributes.tabindex, 0);
  assert.match(bars.attributes["aria-label"], /100 saves. The arrow keys/);
});
