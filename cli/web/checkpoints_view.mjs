// Shows the checkpoints of a job.
import {linkTo} from "./place.mjs";
import {table} from "./table.mjs";
import {ago, count, counted, errorText, number, secondsOf, size, time} from "./text.mjs";
import {coded, h} from "./tree.mjs";

const METRICS_SHOWN = 2, METRIC_DIGITS = 4;

const STATES = {
  COMMITTED: ["ok", "committed"],
  SUPERSEDED: ["soft-mark", "superseded"],
  DAMAGED: ["bad", "✖ damaged"],
};

const MIRROR_STATES = {
  MIRRORED: ["ok", "copied"],
  COPYING: ["soft-mark", "is copied now"],
  WAITING: ["soft-mark", "waits"],
  FAILED: ["bad", "✖ not copied"],
  ONLY_THERE: ["pin", "only there"],
};

const badge = (className, text) => h("span", {class: `badge ${className}`}, text);

export function metricsText(metrics, most = Infinity, digits = 6) {
  const named = Object.entries(metrics ?? {}).map(([name, value]) => `${name} ${number(value, digits)}`);
  return named.slice(0, most).join(", ") + (named.length > most ? ", …" : "");
}

const columnsFor = ({job, now, zone, mirror}) =>
    [{
      name: "step",
      className: "number",
      cell: (each) => h("a", {href: linkTo({job, view: "checkpoints", step: each.step})}, String(each.step))
    },
     {
       name: "state",
       cell: (each) =>
           [badge(...(STATES[each.state] ?? ["soft-mark", each.state.toLowerCase()])),
            each.warnings?.length ? badge("warn", "▲ warning") : null]
     },
     {
       name: "kept by",
       cell: (each) => [each.pinned ? badge("pin", "pinned") : null, (each.tags ?? []).map((tag) => badge("tag", tag))]
     },
     {
       name: "committed",
       className: "age",
       cell: (each) => {
         const at = secondsOf(each.commit_time);
         return at === null ? "" : h("span", {title: time(at, zone)}, ago(now - at));
       }
     },
     {name: "size", className: "number", wide: true, cell: (each) => (each.bytes ? size(each.bytes) : "")},
     {name: "ranks", className: "number", wide: true, cell: (each) => (each.world_size ? count(each.world_size) : "")},
     {name: "metrics", wide: true, cell: (each) => metricsText(each.metrics, METRICS_SHOWN, METRIC_DIGITS)},
     mirror && {
       name: "mirror",
       wide: true,
       cell: (each) => MIRROR_STATES[each.mirror?.state] ? badge(...MIRROR_STATES[each.mirror.state]) : null
     },
].filter(Boolean);

const problem = (error, className) => h(
    "p", {class: className}, errorText(error), error.next ? h("span", {class: "next"}, " ", coded(error.next)) : null);

function details(each, {job, zone}) {
  const at = secondsOf(each.commit_time);
  const facts = [
    ["committed", at === null ? "" : time(at, zone)],
    ["size", each.bytes ? size(each.bytes) : ""],
    ["ranks", each.world_size ? count(each.world_size) : ""],
    ["attempt", each.attempt ? String(each.attempt) : ""],
    [
      "continues",
      each.continues_step === null || each.continues_step === undefined ? "" : `step ${each.continues_step}`
    ],
    ["metrics", metricsText(each.metrics)],
    ["mirror", MIRROR_STATES[each.mirror?.state]?.[1] ?? ""],
    ["more", h("code", {}, `cairn show ${job}@${each.step}`)],
  ];
  return [
    each.state === "SUPERSEDED" ? h("p", {}, "Superseded: the training has gone on from an older step since.") : null,
    each.error ? problem(each.error, "bad-text") : null,
    each.mirror?.error ? problem(each.mirror.error, "bad-text") : null,
    (each.warnings ?? []).map((warning) => problem(warning, "warn-text")),
    h("dl", {},
      facts.filter(([, value]) => value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    h("p", {}, h("a", {href: linkTo({job, view: "operations", step: each.step})}, "Saves and loads of this step")),
  ];
}

function mirrorLine(mirror) {
  const waiting = mirror.steps_waiting > 0 ? `${counted(mirror.steps_waiting, "step")} to copy`
      : mirror.error ? "it may lack something"
                     : "no step waits";
  const copied = mirror.copying_step === null
      ? ""
      : `, step ${mirror.copying_step} is copied now (${size(mirror.bytes_done)} of ${size(mirror.bytes_total)})`;
  return [
    h("p", {}, `Mirror ${mirror.address}: ${waiting}${copied}`),
    mirror.error ? problem(mirror.error, "bad-text") : null,
  ];
}

// `step`: the chosen one, or null. `mirror`: that of the job, or null.
export function checkpointsView({job, checkpoints, mirror, step, now, zone}) {
  if (checkpoints === null) return h("p", {class: "soft"}, "Asking what storage has …");
  if (checkpoints.length === 0) return h("p", {}, `No checkpoint of ${job} is committed yet.`);
  const known = step === null || checkpoints.some((each) => each.step === step);
  return [
    known ? null
          : h("p", {class: "warn-text"},
              `Step ${step} is not among these: it was deleted, was never saved, or is older.`),
    mirror ? mirrorLine(mirror) : null,
    table({
      name: "Checkpoints, newest first",
      columns: columnsFor({job, now, zone, mirror}),
      rows: checkpoints,
      keyOf: (each) => String(each.step),
      classOf: (each) => [each.step === step ? "chosen" : null, each.state === "DAMAGED" ? "bad-row" : null,
                          each.state === "SUPERSEDED" ? "soft-row" : null]
                             .filter(Boolean)
                             .join(" ") ||
          null,
      below: (each) => (each.step === step ? details(each, {job, zone}) : null)
    }),
    h("p", {class: "soft"}, coded(`The newest ${count(checkpoints.length)}. \`cairn list ${job}\` tells all.`)),
  ];
}
