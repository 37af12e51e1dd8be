import assert from "node:assert";
import test from "node:test";

import {EMPTY, firstJob, jobsOf, latestOf, pageOf} from "./page.mjs";
import {operationName} from "./place.mjs";
import {agent, at, checkpoint, damaged, error, failedSave, job, load, NOW, progress, saving, summary, timeline} from "./testing/states.mjs";
import {findAll, textOf} from "./tree.mjs";

const known = (more = {}, place = {}) => ({
  ...EMPTY,
  jobs: [summary()],
  stored: [summary({last_commit_time: at(720)})],
  job: job(),
  checkpoints: [checkpoint(100, {commit_time: at(720)})],
  timelines: [],
  asOf: NOW,
  ...more,
  place: {job: "llm", view: "now", step: null, operation: null, ...place}
});

const shown = (state) => {
  const page = pageOf(state, NOW);
  return {...page, text: textOf(page.nodes.filter(Boolean))};
};

test("pageOf_NothingRuns_SaysSoAndTheLastCommit", () => {
  const page = shown(known());
  assert.match(page.text, /Nothing runs; last commit: step 100, 12 min ago\./);
  assert.match(page.text, /Nothing is wrong\./);
  assert.ok(!page.text.includes("COMMITTED"));
  assert.strictEqual(page.title, "step 100 · llm · Cairn");
});

test("pageOf_ASaveRuns_SaysPhaseProgressRateAndTimeLeft", () => {
  const page = shown(known({job: saving(), samples: {"save 200 1": [[0, 100], [10, 200]]}}));
  for (const text
           of ["Save of step 200: writing", "200 B of 400 B (50%)", "10 B/s", "about 20.0 s", "4 writing",
               "no late rank"]) {
    assert.ok(page.text.includes(text), text);
  }
  assert.ok(!page.text.includes("Nothing runs"));
  assert.strictEqual(page.title, "saving 50% · llm · Cairn");
});

test("pageOf_ALoadAndAReshardRun_ShowsBoth", () => {
  const page = shown(known({
    job: job(
        {loads: [load({number: 1}), load({number: 2, reshard: true, step: null}), load({number: 3, state: "DONE"})]})
  }));
  assert.match(page.text, /Load of step 100: reading/);
  assert.match(page.text, /Reshard: reading/);
  assert.strictEqual(findAll(page.nodes.filter(Boolean), "div", "running").length, 2);
});

test("pageOf_SomethingIsWrong_TheTitleSaysIt", () => {
  const page = shown(known({job: saving({registered: 3, agents: [0, 1, 3].map((rank) => agent(rank))})}));
  assert.match(page.title, /^✖ 1 wrong · saving 50%/);
  assert.strictEqual(findAll(page.nodes.filter(Boolean), "li", "bad").length, 1);
});

test("pageOf_TheCoordinatorIsGone_KeepsWhatIsKnownAndSaysWhatIsNext", () => {
  const trouble = {
    error: error("COORDINATOR_UNREACHABLE", "coordinator 10.0.0.1:7420: refused", "Check that it runs.")
  };
  const page = shown(known({trouble, asOf: NOW - 90}));
  assert.match(page.text, /10\.0\.0\.1:7420: refused.*Check that it runs\..*What is below is of 1 min ago\./);
  assert.match(page.text, /last commit: step 100/);
  assert.strictEqual(page.title, "✖ no answer · llm · Cairn");
  const first = shown({...EMPTY, trouble});
  assert.match(first.text, /Check that it runs\./);
  assert.ok(!first.text.includes("There is no job"));
});

test("pageOf_ThereIsNoJob_SaysHowToStartOne", () => {
  assert.match(shown({...EMPTY, jobs: [], stored: [], asOf: NOW}).text, /There is no job yet\..*cairn run/);
  assert.match(shown({...EMPTY, jobs: [], asOf: NOW}).text, /Asking/);
  assert.match(
      shown({...EMPTY, jobs: [], reading: error("STORAGE_ERROR", "no"), asOf: NOW}).text, /There is no job yet/);
});

test("pageOf_AnUnknownJob_SaysSo", () => {
  const page = shown(known({job: null, absent: true, checkpoints: []}, {job: "other"}));
  assert.match(page.text, /There is no job other here\..*Choose one of the list/);
});

test("pageOf_AJobWithoutAgents_TellsWhatIsStored", () => {
  const state = known({
    jobs: [],
    stored: [summary({state: "stored", agents: 0, world_size: 0, last_commit_time: at(720)})],
    job: null,
    absent: true
  });
  for (const view of ["now", "ranks"]) {
    assert.match(
        shown({...state, place: {...state.place, view}}).text,
        /No agent of this job is registered; last commit: step 100, 12 min ago\..*resumes from step 100/);
  }
  assert.match(shown({...state, place: {...state.place, view: "checkpoints"}}).text, /committed/);
});

test("pageOf_AJobWithoutTrainers_SaysWhatToStart", () => {
  assert.match(
      shown(known({job: job({trainers: 0}), checkpoints: []})).text,
      /no trainer is attached.*Start the training processes/);
});

test("pageOf_4096Ranks_DrawsTwenty", () => {
  const ranks = Array.from({length: 4096}, (_, rank) => progress(rank));
  const state = known(
      {job: saving({world_size: 4096, registered: 4096, ranks, agents: ranks.map(({rank}) => agent(rank))})},
      {view: "ranks"});
  const page = shown(state);
  assert.strictEqual(findAll(page.nodes.filter(Boolean), "tr").length, 21);
  assert.match(page.text, /4,076 more ranks are not shown/);
});

test("pageOf_Checkpoints_ShowTagsPinsMetricsAndMarks", () => {
  const checkpoints = [
    checkpoint(300, {tags: ["best", "new-data"], metrics: {loss: 0.123456789, accuracy: 0.5, rate: 3}}),
    checkpoint(200, {pinned: true, state: "SUPERSEDED"}), damaged(150),
    checkpoint(100, {warnings: [error("REPLICA_MISMATCH", "replicas differ", "Look.")]})
  ];
  const page = shown(known({checkpoints}, {view: "checkpoints", step: 100}));
  for (const text
           of ["best", "new-data", "loss 0.1235, accuracy 0.5, …", "pinned", "superseded", "✖ damaged", "▲ warning",
               "REPLICA_MISMATCH: replicas differ. Look."]) {
    assert.ok(page.text.includes(text), text);
  }
  assert.match(
      shown(known({checkpoints}, {view: "checkpoints", step: 150})).text, /MANIFEST_CORRUPT: it cannot be read. Run/);
  assert.match(shown(known({checkpoints}, {view: "checkpoints", step: 999})).text, /Step 999 is not among these/);
  assert.match(shown(known({checkpoints: null}, {view: "checkpoints"})).text, /Asking/);
  assert.match(shown(known({checkpoints: []}, {view: "checkpoints"})).text, /No checkpoint of llm is committed yet/);
});

test("pageOf_AJobWithAMirror_SaysWhatIsThere", () => {
  const mirror =
      {address: "/mirror", steps_waiting: 1, error: null, copying_step: 150, bytes_done: 1024, bytes_total: 4096};
  const failed = {state: "FAILED", error: error("CHECKSUM_MISMATCH", "w differs", "Run `cairn verify`.")};
  const checkpoints = [
    checkpoint(150, {mirror: {state: "COPYING", error: null}}), checkpoint(100, {mirror: failed}),
    checkpoint(90, {mirror: {state: "LEFT_OUT", error: null}}),
    checkpoint(50, {mirror: {state: "ONLY_THERE", error: null}})
  ];
  const page = shown(known({checkpoints, mirror}, {view: "checkpoints", step: 100}));
  assert.match(page.text, /Mirror \/mirror: 1 step to copy, step 150 is copied now \(1.* of 4.*\)/);
  assert.match(page.text, /is copied now.*✖ not copied.*CHECKSUM_MISMATCH: w differs.*Run.*only there/s);
  const down =
      {...mirror, steps_waiting: 0, copying_step: null, error: error("ROOT_MISSING", "/mirror is empty", "See.")};
  assert.match(
      shown(known({checkpoints, mirror: down}, {view: "checkpoints"})).text,
      /it may lack something.*ROOT_MISSING: \/mirror is empty. See\./s);
  assert.doesNotMatch(shown(known({checkpoints: [checkpoint(1)]}, {view: "checkpoints"})).text, /[Mm]irror/);
});

test("pageOf_Operations_ShowsTheChosenTimeline", () => {
  const timelines = [failedSave(3, 300, 20), timeline(2, 200, 110), timeline(1, 100, 710)];
  const chosen = {
    name: operationName(timelines[0]),
    timeline: {...timelines[0], ranks: [{rank: 0, spans: timelines[0].spans}]},
    error: null
  };
  const page = shown(known({timelines, operation: chosen}, {view: "operations", operation: chosen.name}));
  assert.match(page.text, /Save of step 300, 10\.0 s.*Look at node-3/);
  assert.strictEqual(findAll(page.nodes.filter(Boolean), "rect", "phase-write").length, 2);
  assert.strictEqual(findAll(page.nodes.filter(Boolean), "tr", "bad-row").length, 1);
  const filtered = shown(known({timelines}, {view: "operations", step: 200}));
  assert.match(filtered.text, /Only those of step 200/);
  assert.ok(!filtered.text.includes("RANK_LATE"));
  const gone = shown(
      known({timelines, operation: {name: "9@x", timeline: null, error: "It is forgotten."}}, {view: "operations"}));
  assert.match(gone.text, /It is forgotten\./);
});

// Whatever the names are: a link stays on the page, no attribute is a script, and texts are texts.
test("pageOf_HostileNames_StayText", () => {
  const evil = `"><img src=x onerror=alert(1)>javascript:alert(1)`;
  const state = known(
      {
        jobs: [summary({job: evil})],
        stored: [summary({job: evil, error: error(evil, evil, evil)})],
        job: saving({
          job: evil,
          ranks: [progress(0, {node: evil, note: evil, phase: evil, late: true})],
          error: error(evil, evil)
        }),
        checkpoints:
            [checkpoint(100, {tags: [evil], metrics: {[evil]: 1}, warnings: [error(evil, evil, evil)], state: evil})],
        timelines:
            [{...failedSave(1, 100, 20), kind: "save", result: evil, error: error(evil, evil, evil), begin_time: evil}]
      },
      {job: evil, step: 100});
  for (const view of ["now", "checkpoints", "operations", "ranks"]) {
    const page = shown({...state, place: {...state.place, view}});
    const all = (node) => [node, ...node.children.filter((child) => typeof child === "object").flatMap(all)];
    const nodes = page.nodes.filter(Boolean).flatMap(all);
    for (const {tag, attributes} of nodes) {
      assert.ok(!["script", "img", "iframe", "style", "object"].includes(tag), tag);
      for (const [name, value] of Object.entries(attributes)) {
        assert.ok(!name.startsWith("on") && name !== "style" && name !== "src", name);
        if (name === "href") assert.match(value, /^#[^<>"]*$/);
      }
    }
    assert.ok(page.text.includes(evil), view);
  }
});

test("jobsOf_WhatIsStoredAndWhatRuns_IsOneList", () => {
  const jobs = jobsOf({
    jobs: [summary({job: "b", last_committed_step: null})],
    stored: [summary({job: "c", agents: 0}), summary({job: "b", last_committed_step: 7, last_commit_time: at(5)})]
  });
  assert.deepStrictEqual(
      jobs.map((each) => [each.job, each.last_committed_step, each.last_commit_time]),
      [["b", 7, at(5)], ["c", 100, null]]);
  assert.strictEqual(
      firstJob({jobs: [summary({job: "b"})], stored: [summary({job: "a", agents: 0})]}), "b", "the one that is alive");
  assert.strictEqual(firstJob({jobs: [], stored: []}), null);
});

test("latestOf_ManySources_IsTheNewest", () => {
  const save = {step: 300, time: NOW - 5, failed: false};
  assert.deepStrictEqual(
      latestOf({summary: summary(), checkpoints: [checkpoint(200)], saves: [save]}), {step: 300, time: NOW - 5});
  assert.deepStrictEqual(
      latestOf({summary: summary({last_commit_time: at(9)}), checkpoints: null, saves: []}),
      {step: 100, time: NOW - 9});
  assert.strictEqual(
      latestOf({summary: summary({last_committed_step: null}), checkpoints: [], saves: [{...save, failed: true}]}),
      null);
});
