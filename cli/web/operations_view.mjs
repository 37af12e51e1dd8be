// Shows the saves, loads and reshards that have ended, and the timeline of a chosen one.
import {linkTo, operationName} from "./place.mjs";
import {table} from "./table.mjs";
import {duration, ranksText, secondsOf, size, time} from "./text.mjs";
import {timelineView} from "./timeline.mjs";
import {coded, h} from "./tree.mjs";

const isFine = (each) => ["done", "nothing"].includes(each.result);

// Returns the longest part of an operation, for example "write 3.2 s, ended by rank 3".
export function longestText(timeline) {
  const took = (span) => span.end - span.begin;
  if (timeline.spans.length === 0) return "";
  const longest = timeline.spans.reduce((a, b) => (took(b) > took(a) ? b : a));
  return `${longest.phase} ${duration(took(longest))}` +
      (longest.awaited_ranks.length > 0 ? `, ended by ${ranksText(longest.awaited_ranks)}` : "");
}

const columnsFor = ({job, step, zone}) =>
    [{
      name: "operation",
      cell: (each) =>
          h("a", {href: linkTo({job, view: "operations", step, operation: operationName(each)})},
            `${each.kind} ${each.id}`)
    },
     {name: "step", className: "number", cell: (each) => (each.step === null ? "" : String(each.step))},
     {name: "began", wide: true, cell: (each) => time(secondsOf(each.begin_time), zone)},
     {name: "took", className: "number", cell: (each) => duration(each.duration)},
     {name: "bytes", className: "number", wide: true, cell: (each) => (each.bytes > 0 ? size(each.bytes) : "")},
     {name: "result", cell: (each) => (isFine(each) ? each.result : `✖ ${each.result}`)},
     {name: "longest part", wide: true, cell: longestText},
];

// `operation`: {name, timeline or null, error or null} of the chosen one, or null. `step`: only those of this step.
export function operationsView({job, timelines, operation, step, slice, zone}) {
  if (timelines === null) return h("p", {class: "soft"}, "Asking the coordinator …");
  const rows = timelines.filter((each) => step === null || each.step === step);
  return [
    operation === null ? null
                       : h("section", {key: "timeline", id: "timeline"},
                           operation.timeline !== null ? timelineView(operation.timeline, slice)
                                                       : h("p", {class: operation.error ? "warn-text" : "soft"},
                                                           operation.error ?? "Asking for the timeline …")),
    step === null ? null
                  : h("p", {key: "step"}, `Only those of step ${step}. `,
                      h("a", {href: linkTo({job, view: "operations"})}, "Show all")),
    rows.length === 0
        ? h("p", {key: "none"},
            step === null ? "Nothing has ended since the coordinator started. "
                          : "None that the coordinator remembers. ",
            coded(`\`cairn history ${job} --root ROOT\` tells what storage knows.`))
        : h("div", {key: "list"}, h("h3", {}, step === null ? "All that have ended, newest first" : "Newest first"),
            table({
              name: "Saves, loads and reshards that have ended, newest first",
              columns: columnsFor({job, step, zone}),
              rows,
              keyOf: operationName,
              classOf:
                  (each) => [isFine(each) ? null : "bad-row", operationName(each) === operation?.name ? "chosen" : null]
                                .filter(Boolean)
                                .join(" ") ||
                  null
            })),
  ];
}
