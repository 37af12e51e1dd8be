import assert from "node:assert";
import test from "node:test";

import {behindText, missingRanks, RANKS_SHOWN, ranksShown, trainerWord, worstAgents, worstOf} from "./ranks.mjs";
import {agent, job, load, progress, saving} from "./testing/states.mjs";

const ranks = (rows) => rows.map((row) => row.rank);

test("worstOf_Ranks_AreSortedByWhatOthersWaitFor", () => {
  const rows = [
    progress(0, {phase: "written"}), progress(1, {bytes_done: 90}), progress(2, {phase: "staging", bytes_done: 99}),
    progress(3, {bytes_done: 10}), progress(4, {phase: "written", late: true}),
    progress(5, {bytes_done: 10, idle_seconds: 9}), progress(6, {phase: "failed"}), progress(7, {phase: "unknown (88)"})
  ];
  assert.deepStrictEqual(ranks(worstOf(rows)), [4, 6, 2, 5, 3, 1, 0, 7]);
});

test("worstAgents_Agents_AreSortedByWhatIsWrong", () => {
  const agents = [
    agent(0), agent(1, {current_step: 110}),
    agent(2, {trainer_attached: false, trainer_state: null, current_step: null}), agent(3, {last_heard_seconds: 30}),
    agent(4, {trainer_state: "stopped"}), agent(5, {trainer_step_age_seconds: 50})
  ];
  assert.deepStrictEqual(ranks(worstAgents(agents)), [4, 3, 2, 1, 5, 0]);
});

test("ranksShown_4096Ranks_AreTheWorst20", () => {
  const all = Array.from({length: 4096}, (_, rank) => progress(rank, {bytes_done: rank % 97, late: rank === 4000}));
  const {activity, rows, hidden} = ranksShown(saving({ranks: all, world_size: 4096, registered: 4096}));
  assert.strictEqual(rows.length, RANKS_SHOWN);
  assert.strictEqual(rows[0].rank, 4000);
  assert.strictEqual(hidden, 4076);
  assert.strictEqual(activity.kind, "save");
});

test("ranksShown_NothingRuns_ShowsAgents", () => {
  assert.deepStrictEqual(ranks(ranksShown(job()).rows), [0, 1, 2, 3]);
  assert.strictEqual(ranksShown(job()).activity, null);
  const {rows} =
      ranksShown(job({loads: [load({state: "DONE", ranks: [progress(9)]}), load({number: 2, ranks: [progress(1)]})]}));
  assert.deepStrictEqual(ranks(rows), [1], "those of the load that runs");
});

test("behindText_RanksOfAPhase_NamesThoseThatAreBehind", () => {
  const text = (more) => behindText(saving(more), ranksShown(saving(more)).activity);
  assert.strictEqual(text({}), "", "all are as far");
  const ranks =
      [progress(0, {phase: "written", bytes_done: 100}), progress(1, {bytes_done: 90}), progress(2, {bytes_done: 10})];
  assert.strictEqual(text({ranks}), "rank 2 (writing, 10%), rank 1 (writing, 90%)");
  const many = Array.from({length: 9}, (_, rank) => progress(rank, {bytes_done: 10 * rank}));
  assert.match(text({ranks: many}), /^rank 0 \(writing, 0%\), .* and 5 more$/);
  assert.ok(!text({ranks: many, ranks_left_out: true}).includes("more"), "not all are known");
});

test("behindText_RanksComeToAStep_NamesTheirSteps", () => {
  const agents =
      [agent(0, {current_step: 119}), agent(1, {current_step: null}), agent(2), agent(3, {current_step: 122})];
  const state = saving({agents, state: "PREPARING", step: null, ranks: [progress(0, {phase: "arming"})]});
  const activity = ranksShown(state).activity;
  assert.strictEqual(
      behindText(state, activity), "rank 1 at no step yet, rank 0 at 119, rank 2 at 120; the step is 122");
  assert.strictEqual(
      behindText({...state, agents: [agent(3, {current_step: 122})]}, activity), "", "one rank is as far as itself");
});

test("trainerWord_EachState_IsOneWord", () => {
  const words = [
    {}, {trainer_state: null}, {trainer_state: "stopped"}, {trainer_attached: false, trainer_state: null},
    {trainer_attached: false, trainer_state: "gone"}
  ].map((more) => trainerWord(agent(0, more)));
  assert.deepStrictEqual(words, ["attached", "attached", "stopped", "none", "gone"]);
});

test("missingRanks_AllAgentsAreListed_AreNamed", () => {
  assert.deepStrictEqual(missingRanks(job({agents: [agent(0), agent(2)]})), [1, 3]);
  assert.strictEqual(missingRanks(job({ranks_left_out: true})), null);
});
