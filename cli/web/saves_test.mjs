import assert from "node:assert";
import test from "node:test";

import {blockedOf, failedInARow, savesOf, usualInterval} from "./saves.mjs";
import {at, checkpoint, damaged, failedSave, NOW, span, timeline} from "./testing/states.mjs";

test("savesOf_ATimelineAndItsCheckpoint_AreOneSave", () => {
  const saves = savesOf(
      [timeline(2, 200, 110), timeline(1, 100, 710)],
      [checkpoint(200), checkpoint(100), checkpoint(50, {commit_time: at(5000)})]);
  assert.deepStrictEqual(
      saves.map((save) => [save.step, save.duration, save.blocked, save.bytes]),
      [[50, null, null, 4096], [100, 10, 2, 4096], [200, 10, 2, 4096]]);
  assert.strictEqual(saves[2].time, NOW - 100, "when it ended");
});

test("savesOf_AFailedSaveAndItsRepetition_AreTwo", () => {
  const saves =
      savesOf([timeline(2, 100, 300, {attempt: 2}), failedSave(1, 100, 400)], [checkpoint(100, {attempt: 2})]);
  assert.deepStrictEqual(
      saves.map((save) => [save.step, save.failed, save.bytes]), [[100, true, 0], [100, false, 4096]]);
});

test("savesOf_BeforeAnyAttempt_EachFailureCounts", () => {
  const never = (id, age) => ({...failedSave(id, null, age), attempt: 0});
  assert.strictEqual(savesOf([never(2, 300), never(1, 400)], []).length, 2);
});

test("savesOf_OtherOperationsAndDamagedSteps_AreLeftOut", () => {
  assert.deepStrictEqual(savesOf([timeline(1, 100, 50, {kind: "load"})], [damaged(70)]), []);
  const many = Array.from({length: 300}, (_, i) => timeline(i + 1, i, 5000 - i));
  assert.deepStrictEqual(savesOf(many, []).map((save) => save.step), Array.from({length: 100}, (_, i) => 200 + i));
});

test("blockedOf_ASave_EndsWithTheLastCopy", () => {
  assert.strictEqual(
      blockedOf(timeline(1, 1, 1, {spans: [span("call", 0, 2), span("stage", 2, 5), span("write", 5, 90)]})), 5);
  assert.strictEqual(blockedOf(timeline(1, 1, 1, {spans: []})), 0);
});

test("failedInARow_Saves_CountsTheNewest", () => {
  const [good, bad] = [{failed: false}, {failed: true}];
  assert.deepStrictEqual([[], [good], [bad], [bad, bad, good], [good, bad, bad]].map(failedInARow), [0, 0, 1, 0, 2]);
});

test("usualInterval_Commits_IsTheirMedian", () => {
  const saves = [0, 100, 200, 1000, 1100].map((time) => ({failed: false, time}));
  assert.strictEqual(usualInterval(saves), 100);
  assert.strictEqual(usualInterval(saves.slice(0, 3)), null);
});
