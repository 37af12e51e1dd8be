// Says what is wrong with a job now, from what the coordinator tells. Each alarm has a sentence and what to do next.
import {activitiesOf} from "./activity.mjs";
import {isHalted, isSilent, missingRanks, trainerWord} from "./ranks.mjs";
import {failedInARow, usualInterval} from "./saves.mjs";
import {ago, counted, duration, errorText, listed, ranksText, secondsOf} from "./text.mjs";

// deploy/monitoring/alerts.yaml has the same limits.
const NO_COMMIT_SECONDS = 2 * 3600;
const STUCK_SECONDS = 15 * 60;
// Commits may be so much rarer than usual, and at least so old, before that is an alarm.
const RARER = 3;
const SHORTEST_GAP_SECONDS = 10 * 60;

const bad = (key, text, next) => ({key, severity: "bad", text, next});
const warn = (key, text, next) => ({key, severity: "warn", text, next});
const nextOf = (error, otherwise) => error?.next || error?.metadata?.next || otherwise;

function ofStorage({job, summary, checkpoints}) {
  const found = [];
  const waits = job?.state === "COMMITTING" && job.error !== null;
  if (job?.stalled_storage_calls > 0 || waits) {
    found.push(
        bad("storage",
            waits ? `The commit of step ${job.step} waits for storage. ${errorText(job.error)}`
                  : `Storage does not answer ${counted(job.stalled_storage_calls, "call")} of the coordinator.`,
            "Look at the file system or object store of the root. Saves go on when it answers."));
  }
  if (summary?.error) {
    found.push(
        bad("reading", `Storage fails to tell what stands there. ${errorText(summary.error)}`,
            nextOf(summary.error, "`cairn doctor --root ROOT` looks at the storage.")));
  }
  if (summary?.removals_refused > 0) {
    found.push(warn(
        "removals",
        `Storage refuses to remove the files of ${counted(summary.removals_refused, "deleted checkpoint")}.`,
        "See whether the coordinator may delete there; it tries again."));
  }
  const damaged = checkpoints.filter((each) => each.state === "DAMAGED");
  if (damaged.length > 0) {
    found.push(warn(
        "damaged",
        `${damaged.length === 1 ? "A checkpoint is" : "Checkpoints are"} damaged: ` +
            `${damaged.length === 1 ? "step" : "steps"} ${listed(damaged.map((each) => each.step))}.`,
        "The view Checkpoints says what is wrong; a load takes another one. `cairn repair` may mend it."));
  }
  return found;
}

function ofAgents({job}) {
  const found = [];
  const missing = job.world_size - job.registered;
  if (missing > 0) {
    const ranks = missingRanks(job);
    found.push(
        bad("agents",
            `${missing} of ${counted(job.world_size, "rank")} ${missing === 1 ? "has" : "have"} no agent` +
                `${ranks === null ? "" : ` (${ranksText(ranks)})`}, so nothing can be saved or loaded.`,
            "Look at the logs of these agents on their machines, and whether they reach the coordinator."));
  }
  const silent = job.agents.filter(isSilent);
  if (silent.length > 0) {
    const longest = Math.max(...silent.map((agent) => agent.last_heard_seconds));
    found.push(
        bad("silent",
            `The ${silent.length === 1 ? "agent" : "agents"} of ${ranksText(silent.map((a) => a.rank))} ` +
                `${silent.length === 1 ? "was" : "were"} last heard up to ${ago(longest)}.`,
            `Look at ${silent.length === 1 ? "its machine" : "their machines"} and the network: ` +
                `${listed([...new Set(silent.map((agent) => agent.node))])}.`));
  }
  return found;
}

const HALTED = {
  stopped: "A signal such as SIGSTOP or a debugger has stopped it: `kill -CONT PID` lets it go on.",
  uninterruptible: "It waits in the kernel, mostly for storage or a device: look at that machine's kernel log.",
  gone: "The process has ended: look at its output, and start it again.",
};

function ofTrainers({job}) {
  const found = [];
  for (const word of Object.keys(HALTED)) {
    const halted = job.agents.filter((agent) => isHalted(agent) && trainerWord(agent) === word);
    if (halted.length === 0) continue;
    const longest = Math.max(...halted.map((agent) => agent.trainer_state_age_seconds ?? 0));
    found.push(
        bad(word,
            `The ${halted.length === 1 ? "trainer" : "trainers"} of ${ranksText(halted.map((a) => a.rank))} ` +
                `${halted.length === 1 ? "is" : "are"} ${word} for ${duration(longest)}.`,
            HALTED[word]));
  }
  const without = job.registered - job.trainers;
  if (job.trainers > 0 && without > 0) {
    const ranks =
        job.ranks_left_out ? [] : job.agents.filter((agent) => !agent.trainer_attached).map((agent) => agent.rank);
    found.push(warn(
        "trainers",
        `${counted(without, "agent")} ${without === 1 ? "has" : "have"} no trainer` +
            `${ranks.length > 0 ? `: ${ranksText(ranks)}` : ""}.`,
        "Saves wait for these ranks. Look at the output of their training processes."));
  }
  return found;
}

function ofSaves({job, saves, now}) {
  const found = [];
  const failed = failedInARow(saves);
  if (failed > 0) {
    const last = saves[saves.length - 1];
    const what = failed === 1 ? `The last save${last.step === null ? "" : ` (step ${last.step})`} failed`
                                                                        : `The last ${failed} saves failed`;
    found.push(
        bad("saves", `${what}, ${ago(now - last.time)}. ${errorText(last.error)}`,
            nextOf(last.error, `\`cairn status ${job.job}\` says what to do next; the next save is tried anyway.`)));
  }
  for (const activity of activitiesOf(job)) {
    if (activity.began !== null && now - activity.began > STUCK_SECONDS) {
      found.push(
          bad(`stuck ${activity.key}`, `The ${activity.name} goes on for ${duration(now - activity.began)}.`,
              "The view Ranks names those that it waits for."));
    }
    const late = activity.ranks.filter((rank) => rank.late);
    if (late.length > 0) {
      found.push(
          bad(`late ${activity.key}`,
              `The ${activity.name} waits for ${ranksText(late.map((rank) => rank.rank))}` +
                  `${late[0].note ? `: ${late[0].note}` : ""}.`,
              `Look at ${listed([...new Set(late.map((rank) => rank.node))])}. ` +
                  `The ${activity.kind} is given up at the end of the phase's timeout.`));
    }
  }
  return found;
}

// Returns since when a trainer has run, or null if that is not known. After a restart the last commit may be old.
function trainingSince(job, now) {
  const ages = job.agents.filter((agent) => agent.trainer_attached).map((agent) => agent.trainer_state_age_seconds);
  const known = ages.filter((age) => age !== null);
  return known.length > 0 ? now - Math.max(...known) : null;
}

function ofCommits({job, saves, summary, checkpoints, now}) {
  const times = saves.filter((save) => !save.failed && save.time !== null).map((save) => save.time);
  const last = Math.max(secondsOf(summary?.last_commit_time) ?? 0, ...times);
  const began = job.trainers > 0 ? trainingSince(job, now) : null;
  const since = began === null ? last : Math.max(last, began);
  const found = [];
  const usual = usualInterval(saves);
  const limit =
      usual === null ? NO_COMMIT_SECONDS : Math.min(NO_COMMIT_SECONDS, Math.max(RARER * usual, SHORTEST_GAP_SECONDS));
  // While a save runs, it may be the one that is missed.
  if (job.trainers > 0 && since > 0 && now - since > limit && activitiesOf(job).length === 0) {
    const what = since === last ? "The last commit was" : "Nothing was committed since training began,";
    found.push(warn(
        "commit",
        `${what} ${ago(now - since)}` +
            `${usual === null ? "" : `; usually one comes every ${duration(usual)}`}.`,
        `See whether the training loop calls save. \`cairn save ${job.job}\` asks for one.`));
  }
  const warned = checkpoints.find((each) => each.state === "COMMITTED");
  for (const warning of warned?.warnings ?? []) {
    found.push(warn(
        `warning-${warning.metadata?.alarm ?? warning.reason}`,
        `Step ${warned.step} was committed with a warning. ${errorText(warning)}`,
        nextOf(warning, "Look at the tensors and ranks that it names before you go on from this step.")));
  }
  return found;
}

// Returns the alarms of a job, the worst first: {key, severity ("bad" or "warn"), text, next}. `about`: {job: the
// answer to /api/job, or null if no agent is registered, summary: its entry of /api/jobs, or null, checkpoints: newest
// first, saves: see savesOf, now: seconds}.
export function alarmsOf(about) {
  const found = ofStorage(about);
  if (about.job !== null) {
    found.push(...ofAgents(about), ...ofTrainers(about), ...ofSaves(about), ...ofCommits(about));
  }
  return [...found.filter((each) => each.severity === "bad"), ...found.filter((each) => each.severity === "warn")];
}
