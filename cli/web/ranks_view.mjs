// Shows how many ranks are where, and the ones that are farthest behind.
import {countsText, trainingText} from "./activity.mjs";
import {isHalted, isSilent, ranksShown, trainerWord} from "./ranks.mjs";
import {table} from "./table.mjs";
import {ago, count, counted, duration, size} from "./text.mjs";
import {coded, h} from "./tree.mjs";

const PROGRESS_COLUMNS = [
  {name: "rank", className: "number", cell: (rank) => String(rank.rank)},
  {name: "node", wide: true, cell: (rank) => rank.node},
  {name: "phase", className: "word", cell: (rank) => rank.phase},
  {
    name: "done",
    cell: (rank) =>
        (rank.bytes_total > 0
             ? h("progress",
                 {max: rank.bytes_total, value: rank.bytes_done, "aria-label": `rank ${rank.rank}, bytes done`})
             : "")
  },
  {name: "of", className: "number", wide: true, cell: (rank) => (rank.bytes_total > 0 ? size(rank.bytes_total) : "")},
  {name: "idle", className: "number", wide: true, cell: (rank) => duration(rank.idle_seconds ?? 0)},
  {name: "note", cell: (rank) => [rank.late ? h("b", {}, "LATE ") : null, rank.note]},
];

const AGENT_COLUMNS = [
  {name: "rank", className: "number", cell: (agent) => String(agent.rank)},
  {name: "node", cell: (agent) => agent.node},
  {
    name: "trainer",
    cell: (agent) =>
        trainerWord(agent) + (isHalted(agent) ? ` for ${duration(agent.trainer_state_age_seconds ?? 0)}` : "")
  },
  {name: "step", className: "number", cell: (agent) => agent.current_step ?? ""},
  {
    name: "stepped",
    wide: true,
    className: "age",
    cell: (agent) => (agent.trainer_step_age_seconds === null ? "" : ago(agent.trainer_step_age_seconds))
  },
  {name: "heard", className: "age", cell: (agent) => ago(agent.last_heard_seconds ?? 0)},
];

export function ranksView(job) {
  const {activity, rows, hidden} = ranksShown(job);
  const summary = `${count(job.registered)} of ${counted(job.world_size, "rank")} have an agent; ${trainingText(job)}.`;
  return [
    h("p", {}, summary),
    activity ? h("p", {}, `${activity.name[0].toUpperCase()}${activity.name.slice(1)}: ${countsText(activity.counts)}.`)
             : null,
    activity ? table({
      name: "Ranks, those that others wait for first",
      columns: PROGRESS_COLUMNS,
      rows,
      keyOf: (rank) => String(rank.rank),
      classOf: (rank) => (rank.late ? "bad-row" : null)
    })
             : table({
                 name: "Ranks, those with something wrong first",
                 columns: AGENT_COLUMNS,
                 rows,
                 keyOf: (agent) => String(agent.rank),
                 classOf: (agent) => (isHalted(agent) || isSilent(agent) ? "bad-row" : null)
               }),
    hidden > 0 ? h("p", {class: "soft"},
                   coded(
                       `${count(hidden)} more ${hidden === 1 ? "rank is" : "ranks are"} not shown; these are the ` +
                       `worst. \`cairn status ${job.job} --ranks\` lists all.`))
               : null,
  ];
}
