import assert from "node:assert";
import test from "node:test";

import {ago, count, counted, duration, errorText, listed, number, ranksText, secondsOf, size, time} from "./text.mjs";

test("size_EachUnit_HasOneDecimalFromKibOn", () => {
  assert.deepStrictEqual(
      [0, 1023, 1024, 1536, 3 * 2 ** 40, 2 ** 60].map(size),
      ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "3.0 TiB", "1024.0 PiB"]);
});

test("duration_EachLength_HasTwoUnitsAtMost", () => {
  assert.deepStrictEqual([0, 0.0123, 0.9996, 4.24, 59.94, 59.96, 60, 200, 3600, 7265, 86400, 187200].map(duration), [
    "0 ms", "12 ms", "1.0 s", "4.2 s", "59.9 s", "1 min", "1 min", "3 min 20 s", "1 h", "2 h 1 min", "1 d", "2 d 4 h"
  ]);
});

test("ago_AnyAge_IsRoundedDownToOneUnit", () => {
  assert.deepStrictEqual(
      [-5, 0.4, 35.9, 60, 719, 7300, 200000].map(ago),
      ["just now", "just now", "35 s ago", "1 min ago", "11 min ago", "2 h ago", "2 d ago"]);
});

test("time_AZone_IsThatOfTheViewer", () => {
  const seconds = secondsOf("2026-07-01T22:30:05Z");
  assert.strictEqual(time(seconds, "UTC"), "2026-07-01 22:30:05");
  assert.strictEqual(time(seconds, "Europe/Berlin"), "2026-07-02 00:30:05");
  assert.strictEqual(time(null, "UTC"), "");
  for (const wrong of ["", null, undefined, "yesterday"]) assert.strictEqual(secondsOf(wrong), null);
});

test("listed_ManyItems_NamesSomeAndCountsTheRest", () => {
  assert.strictEqual(listed([1, 2, 3, 4]), "1, 2, 3, 4");
  assert.strictEqual(listed([1, 2, 3, 4, 5, 6]), "1, 2, 3, 4 and 2 more");
  assert.strictEqual(ranksText([3]), "rank 3");
  assert.strictEqual(ranksText(Array.from({length: 4096}, (_, i) => i), 2), "ranks 0, 1 and 4,094 more");
});

test("numbers_LargeAndSmall_AreReadable", () => {
  assert.strictEqual(count(4096), "4,096");
  assert.strictEqual(counted(1, "rank"), "1 rank");
  assert.deepStrictEqual(
      [3, 0.000123456789, 1 / 3, "NaN"].map((value) => number(value)), ["3", "0.000123457", "0.333333", "NaN"]);
  assert.strictEqual(number(1 / 3, 4), "0.3333");
});

test("errorText_AnyError_IsASentence", () => {
  assert.strictEqual(errorText(null), "");
  assert.strictEqual(errorText({reason: "NO_SPACE", message: "disk full"}), "NO_SPACE: disk full.");
  assert.strictEqual(errorText({reason: "", message: "It is gone."}), "It is gone.");
});
