import assert from "node:assert";
import test from "node:test";

import {alarmsOf} from "./alarms.mjs";
import {savesOf} from "./saves.mjs";
import {agent, at, checkpoint, damaged, error, failedSave, job, NOW, progress, saving, summary, timeline} from "./testing/states.mjs";

// Saves that ended well each ten minutes, the last one `age` seconds ago.
const regular = (age) => [0, 1, 2, 3, 4].map((i) => timeline(5 - i, 100 * (5 - i), age + 10 + 600 * i));

function alarms({timelines = regular(60), checkpoints = [], ...more} = {}) {
  return alarmsOf(
      {job: job(), summary: summary(), checkpoints, saves: savesOf(timelines, checkpoints), now: NOW, ...more});
}

function only(found) {
  assert.strictEqual(found.length, 1, JSON.stringify(found));
  assert.ok(found[0].text && found[0].next, "each says what to do");
  return `${found[0].severity}: ${found[0].text}`;
}

test("alarmsOf_AllIsWell_HasNone", () => {
  assert.deepStrictEqual(alarms(), []);
  assert.deepStrictEqual(alarms({job: saving()}), []);
  assert.deepStrictEqual(
      alarms({
        timelines: [],
        job: job({
          trainers: 0,
          agents: [0, 1, 2, 3].map((rank) => agent(rank, {trainer_attached: false, trainer_state: null}))
        })
      }),
      [], "it is starting");
});

test("alarmsOf_AgentsAreMissing_NamesTheirRanks", () => {
  const missing = job({registered: 3, trainers: 3, agents: [0, 1, 3].map((rank) => agent(rank))});
  assert.match(only(alarms({job: missing})), /^bad: 1 of 4 ranks has no agent \(rank 2\)/);
  const large = job({registered: 4000, trainers: 4000, world_size: 4096, ranks_left_out: true});
  assert.match(only(alarms({job: large})), /^bad: 96 of 4,096 ranks have no agent, so/);
});

test("alarmsOf_AnAgentIsSilent_NamesItsNode", () => {
  const found = alarms({job: job({agents: [agent(0), agent(1), agent(2), agent(3, {last_heard_seconds: 40})]})});
  assert.match(only(found), /^bad: The agent of rank 3 was last heard up to 40 s ago/);
  assert.match(found[0].next, /node-3/);
});

test("alarmsOf_TrainersAreHalted_SaysHowAndForHowLong", () => {
  for (const word of ["stopped", "uninterruptible", "gone"]) {
    const halted = agent(2, {trainer_state: word, trainer_state_age_seconds: 95});
    assert.strictEqual(
        only(alarms({job: job({agents: [agent(0), agent(1), halted, agent(3)]})})),
        `bad: The trainer of rank 2 is ${word} for 1 min 35 s.`);
  }
  const without = agent(1, {trainer_attached: false, trainer_state: null});
  assert.strictEqual(
      only(alarms({job: job({trainers: 3, agents: [agent(0), without, agent(2), agent(3)]})})),
      "warn: 1 agent has no trainer: rank 1.");
});

test("alarmsOf_Storage_IsStalledRefusesOrCannotBeRead", () => {
  assert.match(only(alarms({job: job({stalled_storage_calls: 2})})), /^bad: Storage does not answer 2 calls/);
  const waits = saving({state: "COMMITTING", error: error("STORAGE_STALLED", "no answer for 60 s")});
  assert.match(
      only(alarms({job: waits})), /^bad: The commit of step 200 waits for storage. STORAGE_STALLED: no answer/);
  assert.match(
      only(alarms({summary: summary({error: error("STORAGE_ERROR", "Input/output error", "Look.")})})),
      /^bad: Storage fails to tell/);
  assert.match(
      only(alarms({summary: summary({removals_refused: 2})})),
      /^warn: Storage refuses to remove the files of 2 deleted checkpoints/);
  assert.match(only(alarms({checkpoints: [checkpoint(500), damaged(70)]})), /^warn: A checkpoint is damaged: step 70/);
});

test("alarmsOf_SavesFail_TellsTheReasonAndWhatIsNext", () => {
  const found = alarms({timelines: [failedSave(9, 600, 20), ...regular(60)]});
  assert.strictEqual(
      only(found), "bad: The last save (step 600) failed, 10 s ago. RANK_LATE: rank 3 made no progress.");
  assert.strictEqual(found[0].next, "Look at node-3.");
  assert.match(
      only(alarms({timelines: [failedSave(9, 700, 20), failedSave(8, 600, 50), ...regular(60)]})),
      /^bad: The last 2 saves failed/);
  assert.deepStrictEqual(
      alarms({timelines: [timeline(10, 700, 15), failedSave(9, 600, 50), ...regular(60)]}), [], "it was made good");
});

test("alarmsOf_NoCommitForLong_IsMeasuredByWhatIsUsual", () => {
  assert.deepStrictEqual(alarms({timelines: regular(1790)}), []);
  assert.match(
      only(alarms({timelines: regular(1810)})),
      /^warn: The last commit was 30 min ago; usually one comes every 10 min/);
  // Too few to know what is usual.
  const few = [timeline(1, 100, 7100)];
  assert.deepStrictEqual(alarms({timelines: few}), []);
  assert.match(only(alarms({timelines: [timeline(1, 100, 7300)]})), /^warn: The last commit was 2 h ago/);
  assert.deepStrictEqual(alarms({timelines: regular(1810), job: saving()}), [], "a save runs");
  assert.deepStrictEqual(alarms({timelines: regular(1810), job: job({trainers: 0})}), [], "nobody trains");
  assert.match(
      only(alarms({timelines: [], summary: summary({last_commit_time: at(8000)})})),
      /^warn: The last commit was 2 h ago/);
});

test("alarmsOf_TrainingWasResumed_CountsFromThen", () => {
  const since = (age) => job({agents: [0, 1, 2, 3].map((rank) => agent(rank, {trainer_state_age_seconds: age}))});
  assert.deepStrictEqual(alarms({timelines: regular(90000), job: since(600)}), [], "the last commit is of yesterday");
  assert.match(
      only(alarms({timelines: regular(90000), job: since(1900)})),
      /^warn: Nothing was committed since training began, 31 min ago; usually/);
  assert.match(
      only(alarms({timelines: [], job: since(7300)})), /^warn: Nothing was committed since training began, 2 h ago\.$/);
  assert.deepStrictEqual(alarms({timelines: [], job: since(null)}), [], "it is not known since when");
});

test("alarmsOf_AnOperationHangs_NamesWhomItWaitsFor", () => {
  assert.match(
      only(alarms({job: saving({create_time: at(1000)})})), /^bad: The save of step 200 goes on for 16 min 40 s/);
  const late = saving({ranks: [progress(0), progress(3, {late: true, note: "no progress for 41 s"})]});
  assert.strictEqual(only(alarms({job: late})), "bad: The save of step 200 waits for rank 3: no progress for 41 s.");
});

test("alarmsOf_TheLatestCheckpointHasAWarning_TellsIt", () => {
  const warned = checkpoint(500, {warnings: [error("REPLICA_MISMATCH", "replicas differ", "Look.")]});
  assert.match(
      only(alarms({checkpoints: [warned, checkpoint(400)]})),
      /^warn: Step 500 was committed with a warning. REPLICA_MISMATCH/);
  assert.deepStrictEqual(alarms({checkpoints: [checkpoint(500), {...warned, step: 400}]}), [], "a later one has none");
});

test("alarmsOf_Several_TheWorstComesFirst", () => {
  const found = alarms({job: job({stalled_storage_calls: 1}), summary: summary({removals_refused: 1})});
  assert.deepStrictEqual(found.map((alarm) => alarm.severity), ["bad", "warn"]);
  assert.deepStrictEqual(
      alarms({job: null, checkpoints: [damaged(7)]}).map((alarm) => alarm.key), ["damaged"], "no agent is there");
});
