// Chooses which ranks of a job to show: never all of thousands, but those that others wait for.
import {activitiesOf} from "./activity.mjs";
import {listed} from "./text.mjs";

export const RANKS_SHOWN = 20;
// An agent is heard each second or so.
export const SILENT_SECONDS = 10;

// Phases of a rank from the one that is farthest behind; the others are not behind.
const ORDER = ["arming", "waiting", "planning", "staging", "staged", "writing", "reading", "written", "done"];

const phaseOrder = (phase) => {
  const at = ORDER.indexOf(phase);
  return at < 0 ? ORDER.length : at;
};

const share = (rank) => (rank.bytes_total > 0 ? rank.bytes_done / rank.bytes_total : 0);

// Compares by each of the keys in turn; the lower comes first.
const by = (...keys) => (a, b) => {
  for (const key of keys) {
    const [left, right] = [key(a), key(b)];
    if (left !== right) return left < right ? -1 : 1;
  }
  return 0;
};

// Returns the ranks of what runs, those that others wait for first, at most `most`.
export function worstOf(ranks, most = RANKS_SHOWN) {
  return [...ranks]
      .sort(
          by((rank) => !rank.late, (rank) => rank.phase === "failed" ? -1 : phaseOrder(rank.phase), share,
             (rank) => -(rank.idle_seconds ?? 0), (rank) => rank.rank))
      .slice(0, most);
}

const BEHIND_NAMED = 3;

// Returns which ranks are farthest behind in what runs, for example "rank 3 (writing, 10%)"; "" if all are as far.
// Before the ranks have come to the step of a save, that is told by their steps.
export function behindText(job, activity) {
  const coming = activity.kind === "save" && ["agreeing", "copying"].includes(activity.phase);
  if (coming && !job.ranks_left_out && job.highest_step !== null) {
    const goal = activity.step ?? job.highest_step;
    const behind = job.agents.filter((agent) => (agent.current_step ?? -1) < goal);
    if (behind.length > 0) {
      const steps = behind.sort(by((agent) => agent.current_step ?? -1, (agent) => agent.rank));
      const named = steps.map((agent) => `rank ${agent.rank} at ${agent.current_step ?? "no step yet"}`);
      return `${listed(named, BEHIND_NAMED)}; the step is ${goal}`;
    }
  }
  const order = worstOf(activity.ranks, activity.ranks.length);
  const howFar = (rank) => `${rank.phase}${rank.bytes_total > 0 ? `, ${Math.floor(100 * share(rank))}%` : ""}`;
  const best = order.length > 0 ? howFar(order[order.length - 1]) : "";
  const behind = order.filter((rank) => howFar(rank) !== best);
  const named = behind.map((rank) => `rank ${rank.rank} (${howFar(rank)})`);
  // How many more there are is known only if all ranks are.
  return listed(job.ranks_left_out ? named.slice(0, BEHIND_NAMED) : named, BEHIND_NAMED);
}

// Returns how the trainer of an agent stands, in one word.
export function trainerWord(agent) {
  if (!agent.trainer_attached) return agent.trainer_state === "gone" ? "gone" : "none";
  return [null, "running"].includes(agent.trainer_state) ? "attached" : agent.trainer_state;
}

export const isHalted = (agent) => !["attached", "none"].includes(trainerWord(agent)) && agent.trainer_attached;
export const isSilent = (agent) => (agent.last_heard_seconds ?? 0) > SILENT_SECONDS;

// Returns the agents, those with something wrong first, then those whose training is farthest behind, at most `most`.
export function worstAgents(agents, most = RANKS_SHOWN) {
  return [...agents]
      .sort(
          by((agent) => !isHalted(agent), (agent) => !isSilent(agent), (agent) => agent.trainer_attached,
             (agent) => agent.current_step ?? -1, (agent) => -(agent.trainer_step_age_seconds ?? 0),
             (agent) => agent.rank))
      .slice(0, most);
}

// Returns the ranks without an agent; null if not all agents of the job are listed.
export function missingRanks(job) {
  if (job.ranks_left_out) return null;
  const there = new Set(job.agents.map((agent) => agent.rank));
  return Array.from({length: job.world_size}, (_, rank) => rank).filter((rank) => !there.has(rank));
}

// Returns what is shown of the ranks of a job: {activity, rows, hidden}. While something runs, `activity` is that and
// `rows` its ranks; else `activity` is null and `rows` agents. So many more are not shown: `hidden`.
export function ranksShown(job, most = RANKS_SHOWN) {
  const activity = activitiesOf(job).find((each) => each.ranks.length > 0) ?? null;
  const rows = activity ? worstOf(activity.ranks, most) : worstAgents(job.agents, most);
  const all = activity ? job.world_size : job.registered;
  return {activity, rows, hidden: Math.max(all - rows.length, 0)};
}
