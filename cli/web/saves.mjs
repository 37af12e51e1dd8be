// Puts together what is known of each save: how long it took, how many bytes it wrote, whether it failed.
import {secondsOf} from "./text.mjs";

// As far as these parts, the training loops of some ranks may be waiting.
const BLOCKING = ["call", "wait", "plan", "prepare", "stage"];

// Returns for how many seconds of a save training may have waited: until the last rank had copied its tensors.
export function blockedOf(timeline) {
  return timeline.spans.filter((span) => BLOCKING.includes(span.phase))
      .reduce((end, span) => Math.max(end, span.end), 0);
}

// Returns the saves, oldest first, at most the newest `most`: {key, step, attempt, time, duration, blocked, bytes,
// failed, error, timeline}. The coordinator tells durations of the last ones since it started; of older ones only the
// checkpoint is known, and duration, blocked and timeline are null. Times are in seconds.
export function savesOf(timelines, checkpoints, most = 100) {
  const saves = new Map();
  const keyOf = (save) => (save.attempt > 0 ? `${save.step} ${save.attempt}` : `id ${save.id}`);
  for (const each of checkpoints) {
    if (each.bytes === null || each.bytes === undefined) continue;  // it is damaged
    saves.set(keyOf(each), {
      key: keyOf(each),
      step: each.step,
      attempt: each.attempt,
      time: secondsOf(each.commit_time),
      duration: null,
      blocked: null,
      bytes: each.bytes,
      failed: false,
      error: null,
      timeline: null
    });
  }
  for (const each of timelines.filter((timeline) => timeline.kind === "save")) {
    const failed = each.result !== "done";
    saves.set(keyOf(each), {
      key: keyOf(each),
      step: each.step,
      attempt: each.attempt,
      time: secondsOf(each.begin_time) + each.duration,
      duration: each.duration,
      blocked: blockedOf(each),
      bytes: failed ? 0 : each.bytes,
      failed,
      error: each.error,
      timeline: each
    });
  }
  return [...saves.values()].sort((a, b) => (a.time ?? 0) - (b.time ?? 0)).slice(-most);
}

// Returns how many of the newest saves failed one after the other.
export function failedInARow(saves) {
  const last = saves.findLastIndex((save) => !save.failed);
  return saves.length - 1 - last;
}

// Returns the usual number of seconds between two commits (their median), or null if there are fewer than four.
export function usualInterval(saves) {
  const times = saves.filter((save) => !save.failed && save.time !== null).map((save) => save.time);
  if (times.length < 4) return null;
  const between = times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b);
  return between[Math.floor(between.length / 2)];
}
