import assert from "node:assert";
import test from "node:test";

import {activitiesOf, awaitedText, briefText, countsText, preparingText, rateOf, timeLeft, trainingText, withSample} from "./activity.mjs";
import {job, load, NOW, progress, saving} from "./testing/states.mjs";

test("activitiesOf_WhatHasEnded_IsNotUnderWay", () => {
  for (const state of [null, "COMMITTED", "ABORTED", "DAMAGED", "DELETED"]) {
    assert.deepStrictEqual(activitiesOf(job({state})), [], state);
  }
  for (const state of ["DONE", "FAILED", "NOTHING_TO_LOAD"])
    assert.deepStrictEqual(activitiesOf(job({loads: [load({state})]})), []);
});

test("activitiesOf_EachPhase_IsSaidInAWord", () => {
  const phases = {
    PREPARING: "agreeing",
    COLLECTING: "copying",
    WRITING: "writing",
    COMMITTING: "committing",
    ABORTING: "stopping",
    "unknown (77)": "unknown (77)"
  };
  for (const [state, phase] of Object.entries(phases))
    assert.strictEqual(activitiesOf(saving({state}))[0].phase, phase);
  const [{kind, name, phase}] = activitiesOf(job({loads: [load({reshard: true, step: null})]}));
  assert.deepStrictEqual([kind, name, phase], ["reshard", "reshard", "reading"]);
});

test("activitiesOf_ASave_TellsItsBytesAndBegin", () => {
  const [save] = activitiesOf(saving());
  assert.deepStrictEqual([save.name, save.done, save.total, NOW - save.began], ["save of step 200", 200, 400, 12]);
  assert.strictEqual(activitiesOf(saving({step: null, state: "PREPARING"}))[0].name, "save, step not agreed yet");
  // An older coordinator does not count all ranks together.
  assert.strictEqual(activitiesOf(saving({bytes_done: 0, bytes_total: 0}))[0].total, 400);
});

test("rateOf_Samples_IsThatOfTheLastSeconds", () => {
  let samples = {};
  const at = (done) => activitiesOf(saving({bytes_done: done, ranks: []}));
  samples = withSample(samples, at(0), 0);
  assert.strictEqual(rateOf(samples, at(0)[0]), null, "one sample");
  for (let second = 1; second <= 60; ++second)
    samples = withSample(samples, at(second < 40 ? 0 : 10 * (second - 40)), second);
  assert.strictEqual(rateOf(samples, at(200)[0]), 10, "what was long ago counts no more");
  assert.ok(samples[at(0)[0].key].length <= 17);
  assert.strictEqual(timeLeft(at(200)[0], 10), 20);
  assert.deepStrictEqual(withSample(samples, [], 61), {}, "it has ended");
  const again = withSample(samples, at(5), 61);
  assert.strictEqual(rateOf(again, at(5)[0]), null, "fewer bytes than before: another attempt");
});

test("timeLeft_NothingMoves_IsNotSaid", () => {
  const [save] = activitiesOf(saving());
  assert.strictEqual(timeLeft(save, null), null);
  assert.strictEqual(timeLeft(save, 0), null);
  assert.strictEqual(timeLeft({...save, phase: "committing"}, 10), null);
  assert.strictEqual(timeLeft({...save, done: save.total}, 10), null);
});

test("awaitedText_LateRanks_AreNamedAndElseCounted", () => {
  const [save] = activitiesOf(saving({ranks: [progress(1, {late: true}), progress(2)]}));
  assert.strictEqual(awaitedText(save), "waits for rank 1");
  assert.strictEqual(
      awaitedText({...save, ranks: [], counts: [{phase: "writing", ranks: 4000, late: 7}]}), "waits for 7 late ranks");
  assert.strictEqual(awaitedText({...save, ranks: []}), "");
  assert.strictEqual(
      countsText([{phase: "written", ranks: 4090, late: 0}, {phase: "writing", ranks: 6, late: 2}]),
      "4,090 written, 6 writing (2 late)");
});

test("briefText_WhatRuns_FitsATitle", () => {
  assert.strictEqual(briefText([]), "");
  assert.strictEqual(briefText(activitiesOf(saving())), "saving 50%");
  assert.strictEqual(briefText(activitiesOf(saving({state: "COMMITTING"}))), "saving (committing)");
  assert.strictEqual(briefText(activitiesOf(job({loads: [load()]}))), "loading (reading)");
});

test("trainingText_Trainers_SayTheirSteps", () => {
  assert.strictEqual(trainingText(job()), "4 trainers, at steps 120 to 122");
  assert.strictEqual(trainingText(job({highest_step: 120})), "4 trainers, at step 120");
  assert.strictEqual(trainingText(job({lowest_step: null, highest_step: null})), "4 trainers");
  assert.strictEqual(trainingText(job({trainers: 0})), "no trainer is attached");
  assert.strictEqual(
      preparingText(job({layouts_awaited: 12, layout_awaited_ranks: [3, 5]})),
      "Trainers wait in prepare for ranks 3, 5 and 10 more.");
  assert.strictEqual(preparingText(job()), "");
});
