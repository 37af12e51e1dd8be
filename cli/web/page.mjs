// Puts the whole page together from what is known: a function of the state, without browser, clock or network.
import {activitiesOf, briefText} from "./activity.mjs";
import {alarmsOf} from "./alarms.mjs";
import {checkpointsView} from "./checkpoints_view.mjs";
import {alarmList, commitText, nowCards, plots} from "./now_view.mjs";
import {operationsView} from "./operations_view.mjs";
import {linkTo, VIEWS} from "./place.mjs";
import {ranksView} from "./ranks_view.mjs";
import {savesOf} from "./saves.mjs";
import {ago, count, secondsOf} from "./text.mjs";
import {coded, h} from "./tree.mjs";

const TABS = {
  now: "Now",
  checkpoints: "Checkpoints",
  operations: "Saves and loads",
  ranks: "Ranks"
};

// What is not known yet is null.
export const EMPTY = {
  place: {job: null, view: "now", step: null, operation: null},
  jobs: null,     // those of the coordinator
  stored: null,   // those with checkpoints too
  job: null,      // the answer to /api/job of place.job
  absent: false,  // no agent of place.job is registered
  timelines: null,
  checkpoints: null,
  mirror: null,     // of the job
  reading: null,    // why storage could not be asked: an error
  operation: null,  // see operationsView
  samples: {},      // see withSample
  picked: null,     // the key of a save in the plots
  slice: "",        // what the pointer is on in a timeline
  trouble: null,    // {error, since}: why nothing could be asked
  asOf: null,       // when the last answer came
  zone: "UTC",
};

// Returns the jobs by name: those of the coordinator, and those that only have checkpoints.
export function jobsOf({jobs, stored}) {
  const known = new Map((stored ?? []).map((job) => [job.job, job]));
  for (const job of jobs ?? []) {
    const before = known.get(job.job);
    known.set(job.job, {
      ...job,
      last_commit_time: before?.last_commit_time ?? null,
      error: before?.error ?? job.error,
      last_committed_step: job.last_committed_step ?? before?.last_committed_step ?? null
    });
  }
  return [...known.values()].sort((a, b) => (a.job < b.job ? -1 : 1));
}

// Returns the job to show if the address names none: one that is alive, if there is one.
export function firstJob(state) {
  const jobs = jobsOf(state);
  return (jobs.find((job) => job.agents > 0) ?? jobs[0])?.job ?? null;
}

// Returns {step, time} of the last commit, or null.
export function latestOf({summary, checkpoints, saves}) {
  const listed = (checkpoints ?? []).find((each) => each.state === "COMMITTED");
  const known = [
    listed && {step: listed.step, time: secondsOf(listed.commit_time)},
    ...saves.filter((save) => !save.failed).map(({step, time}) => ({step, time}))
  ].filter(Boolean);
  if (known.length > 0) return known.reduce((a, b) => ((b.time ?? 0) > (a.time ?? 0) ? b : a));
  if (summary?.last_committed_step === null || summary?.last_committed_step === undefined) return null;
  return {step: summary.last_committed_step, time: secondsOf(summary.last_commit_time)};
}

function jobList(state, now) {
  const jobs = jobsOf(state);
  return h("ul", {class: "jobs"}, jobs.map((job) => {
    const here = job.job === state.place.job;
    const at = secondsOf(job.last_commit_time);
    const wrong = job.trainers_halted > 0 || job.error || (job.agents > 0 && job.agents < job.world_size);
    return h(
        "li", {key: job.job, class: here ? "chosen" : null},
        h("a", {href: linkTo({job: job.job, view: state.place.view}), "aria-current": here ? "page" : null}, job.job),
        h("span", {class: wrong ? "bad-text" : "soft"}, ` ${wrong ? "✖ " : ""}${job.state}`),
        h("span", {class: "soft"}, job.agents > 0 ? ` · ${count(job.agents)} of ${count(job.world_size)} agents` : "",
          job.last_committed_step === null ? "" : ` · step ${job.last_committed_step}`,
          at === null ? "" : `, ${ago(now - at)}`));
  }));
}

function tabs({place}) {
  return h(
      "nav", {class: "tabs", "aria-label": "Views"},
      VIEWS.map(
          (view) =>
              h("a",
                {key: view, href: linkTo({job: place.job, view}), "aria-current": view === place.view ? "page" : null},
                TABS[view])));
}

// Shows a job without agents: what is stored, and how to go on.
function storedJob(state, latest, now) {
  const {job} = state.place;
  return h(
      "div", {key: "stored", class: "card"},
      h("p", {class: "headline"}, `No agent of this job is registered; ${commitText(latest, now)}.`),
      h("p", {},
        coded(
            latest === null ? "Start its agents and its training; `cairn run` does both. The job shows here."
                            : "Its checkpoints are in storage. To go on, start the job again with the same " +
                    `root: it resumes from step ${latest.step}.`)),
      h("p", {class: "soft"},
        coded(`\`cairn list ${job}\` tells the checkpoints, \`cairn doctor\` what is wrong with a machine.`)));
}

function noJobs() {
  return h(
      "div", {key: "none", class: "card"}, h("p", {class: "headline"}, "There is no job yet."),
      h("p", {},
        coded(
            "Start one with this coordinator: `cairn run --coordinator ADDRESS --job NAME -- python train.py`, or a " +
            "`cairn-agent` for each rank. It shows here, and so do jobs that have checkpoints below the root.")));
}

function unknownJob(state) {
  return h(
      "div", {key: "unknown", class: "card"}, h("p", {class: "headline"}, `There is no job ${state.place.job} here.`),
      h("p", {}, jobsOf(state).length > 0 ? "Choose one of the list." : "The coordinator has no job at all.",
        " If the job was just started, wait for its first agent; else see whether this is the right coordinator."));
}

function trouble({trouble: told, asOf}, now) {
  if (told === null) return null;
  const {error} = told;
  return h(
      "div", {key: "trouble", class: "card trouble", role: "alert"},
      h("p", {class: "headline"}, h("span", {"aria-hidden": "true"}, "✖ "), error.message),
      h("p", {}, coded(error.next ?? "")),
      h("p", {class: "soft"},
        asOf === null
            ? "This page asks again each few seconds."
            : `What is below is of ${ago(now - asOf)}. This page asks again each few seconds, and goes on by itself.`));
}

// Returns {title, state, nodes, alarms}: the window's title, a line about how fresh all is, and the page. `now`:
// seconds.
export function pageOf(state, now) {
  const {place, job, zone} = state;
  const summary = jobsOf(state).find((each) => each.job === place.job) ?? null;
  const checkpoints = state.checkpoints ?? [];
  const saves = savesOf(state.timelines ?? [], checkpoints);
  const latest = latestOf({summary, checkpoints, saves});
  const activities = job === null ? [] : activitiesOf(job);
  const known = summary !== null && place.job !== null;
  const alarms = known
      ? alarmsOf({job, summary: state.reading ? {...summary, error: state.reading} : summary, checkpoints, saves, now})
      : [];
  const views = {
    now: () =>
        [h("h3", {}, "What is wrong"), alarmList(alarms), h("h3", {}, "What happens"),
         job === null ? storedJob(state, latest, now)
                      : nowCards({job, activities, samples: state.samples, latest, saves, now, zone}),
         h("h3", {}, "Saves"), plots({job: place.job, saves, picked: state.picked, zone, now})],
    checkpoints: () => checkpointsView(
        {job: place.job, checkpoints: state.checkpoints, mirror: state.mirror, step: place.step, now, zone}),
    operations: () => operationsView({
      job: place.job,
      timelines: state.timelines,
      operation: state.operation,
      step: place.step,
      slice: state.slice,
      zone
    }),
    ranks: () => (job === null ? storedJob(state, latest, now) : ranksView(job)),
  };
  const listed = state.jobs !== null && (state.stored !== null || state.reading !== null);
  const loading = h("p", {key: "loading", class: "soft"}, "Asking the coordinator …");
  let main;
  if (known && (job !== null || state.absent)) {
    main =
        h("section", {key: place.job, id: "job"}, h("h2", {}, place.job), tabs(state),
          h("div", {key: place.view, id: place.view, class: "view"}, views[place.view]()));
  } else if (!listed || known) {
    main = state.trouble === null ? loading : null;
  } else {
    main = place.job === null ? noJobs() : unknownJob(state);
  }
  return {
    title: titleOf(state, activities, alarms, latest),
    alarms,
    state: state.asOf === null ? "" : `times in ${zone}`,
    nodes: [
      trouble(state, now),
      jobsOf(state).length > 0 ? h("nav", {key: "jobs", id: "jobs", "aria-label": "Jobs"}, jobList(state, now)) : null,
      main
    ]
  };
}

function titleOf({place, trouble: told}, activities, alarms, latest) {
  const parts = [];
  if (told !== null)
    parts.push("✖ no answer");
  else if (place.job !== null) {
    const wrong = alarms.filter((alarm) => alarm.severity === "bad").length;
    if (wrong > 0) parts.push(`✖ ${wrong} wrong`);
    parts.push(briefText(activities) || (latest === null ? "no commit" : `step ${latest.step}`));
  }
  if (place.job !== null) parts.push(place.job);
  return [...parts, "Cairn"].join(" · ");
}
