// Says what a job does at this moment, from the answer to /api/job.
import {count, counted, duration, ranksText, secondsOf} from "./text.mjs";

const SAVE_STATES = {
  PREPARING: ["agreeing", "ranks agree on a step and come to it"],
  COLLECTING: ["copying", "trainers copy their tensors into memory; training waits for that"],
  WRITING: ["writing", "agents write to storage; training goes on"],
  COMMITTING: ["committing", "all files are written; the commit is being recorded"],
  ABORTING: ["stopping", "it was given up; ranks stop and remove their files"],
};
const LOAD_STATES = {
  COLLECTING: ["planning", "ranks call load; the coordinator plans"],
  READING: ["reading", "agents read, and trainers take the bytes"],
};
const ENDED_SAVES = ["COMMITTED", "ABORTED", "DAMAGED", "DELETED"];
const ENDED_LOADS = ["DONE", "FAILED", "NOTHING_TO_LOAD"];

// Progress of the last seconds tells the rate.
const RATE_SECONDS = 15;
const SHORTEST_SECONDS = 2;

const sum = (ranks, key) => ranks.reduce((total, rank) => total + rank[key], 0);

function activityOf(kind, name, part, words, more) {
  return {
    kind,
    name,
    phase: words[0],
    meaning: words[1],
    done: Math.max(part.bytes_done ?? 0, sum(part.ranks, "bytes_done")),
    total: Math.max(part.bytes_total ?? 0, sum(part.ranks, "bytes_total")),
    counts: part.phase_counts,
    ranks: part.ranks,
    error: part.error,
    transport: part.transport,
    ...more
  };
}

// Returns what runs: saves before loads and reshards, each as
// {kind, key, name, phase, meaning, done, total, counts, ranks, error, transport, began}; sizes are in bytes. A phase
// that this page does not know is shown by its own name.
export function activitiesOf(job) {
  const found = [];
  if (job.state !== null && !ENDED_SAVES.includes(job.state)) {
    found.push(activityOf(
        "save", job.step === null ? "save, step not agreed yet" : `save of step ${job.step}`, job,
        SAVE_STATES[job.state] ?? [job.state.toLowerCase(), ""],
        {key: `save ${job.step} ${job.attempt}`, step: job.step, began: secondsOf(job.create_time)}));
  }
  for (const load of job.loads) {
    if (ENDED_LOADS.includes(load.state)) continue;
    const kind = load.reshard ? "reshard" : "load";
    found.push(activityOf(
        kind, kind + (load.step === null ? "" : ` of step ${load.step}`), load,
        LOAD_STATES[load.state] ?? [load.state.toLowerCase(), ""],
        {key: `load ${load.number}`, step: load.step, began: null}));
  }
  return found;
}

// Returns `samples` with the progress of `activities` at `now` (seconds), and without what is old or has ended:
// {key: [[seconds, bytes], ...]}.
export function withSample(samples, activities, now) {
  return Object.fromEntries(activities.map((each) => {
    const before = (samples[each.key] ?? []).filter(([at, done]) => now - at <= RATE_SECONDS && done <= each.done);
    return [each.key, [...before, [now, each.done]]];
  }));
}

// Returns bytes per second, or null if too little is known.
export function rateOf(samples, activity) {
  const known = samples[activity.key] ?? [];
  if (known.length < 2) return null;
  const [[from, before], [to, after]] = [known[0], known[known.length - 1]];
  return to - from < SHORTEST_SECONDS ? null : (after - before) / (to - from);
}

// Returns seconds, or null if it cannot be said: no byte moves, or not all bytes are known yet.
export function timeLeft(activity, rate) {
  const moves = ["copying", "writing", "reading"].includes(activity.phase);
  if (!moves || !rate || activity.total === 0 || activity.done >= activity.total) return null;
  return (activity.total - activity.done) / rate;
}

// Returns for example "4,090 written, 6 writing (2 late)".
export function countsText(counts) {
  return counts
      .map((each) => `${count(each.ranks)} ${each.phase}` + (each.late > 0 ? ` (${count(each.late)} late)` : ""))
      .join(", ");
}

// Returns whom the others wait for, or "".
export function awaitedText(activity) {
  const late = activity.ranks.filter((rank) => rank.late);
  if (late.length > 0) return `waits for ${ranksText(late.map((rank) => rank.rank))}`;
  const known = activity.counts.reduce((total, each) => total + each.late, 0);
  return known > 0 ? `waits for ${counted(known, "late rank")}` : "";
}

// Returns what the trainers do while nothing runs, for example "64 trainers, at steps 1,200 to 1,204".
export function trainingText(job) {
  if (job.trainers === 0) return "no trainer is attached";
  const [low, high] = [job.lowest_step, job.highest_step];
  const steps = low === null ? ""
      : low === high         ? `, at step ${count(low)}`
                             : `, at steps ${count(low)} to ${count(high)}`;
  return counted(job.trainers, "trainer") + steps;
}

// Returns what trainers wait for in `prepare`, or "".
export function preparingText(job) {
  if (!job.layouts_awaited) return "";
  const more = job.layouts_awaited - job.layout_awaited_ranks.length;
  const named = ranksText(job.layout_awaited_ranks, 8);
  return `Trainers wait in prepare for ${named}${more > 0 ? ` and ${count(more)} more` : ""}.`;
}

// Returns in a few words what the job does, for the title: "saving 43%", or "" if nothing runs.
export function briefText(activities) {
  if (activities.length === 0) return "";
  const {kind, phase, done, total} = activities[0];
  const verb = {save: "saving", load: "loading", reshard: "resharding"}[kind];
  const share =
      total > 0 && ["copying", "writing", "reading"].includes(phase) ? ` ${Math.floor(100 * done / total)}%` : "";
  return verb + (share || ` (${phase})`);
}

// Returns for example "for 12.0 s".
export function runningText(activity, now) {
  return activity.began === null ? "" : `for ${duration(now - activity.began)}`;
}
