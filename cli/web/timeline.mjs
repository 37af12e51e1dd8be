// Draws what a save or load did with its time: a track for each rank, of slices with the colours of their phases.
import {duration, errorText, ranksText} from "./text.mjs";
import {coded, h} from "./tree.mjs";

const PHASES = ["call", "wait", "plan", "prepare", "stage", "order", "write", "read", "commit", "abort"];
const ROW = 16;  // pixels
const drawn = new WeakMap();

function sliceText(track, span) {
  return `${track.name}: ${span.phase}, ${duration(span.end - span.begin)}` +
      (span.awaited_ranks.length > 0 ? `, waits for ${ranksText(span.awaited_ranks)}` : "");
}

function chartOf(timeline) {
  const tracks = [
    {name: "all ranks", spans: timeline.spans},
    ...timeline.ranks.map((rank) => ({name: `rank ${rank.rank}`, spans: rank.spans}))
  ];
  const scale = 100 / Math.max(timeline.duration, 1e-9);
  const height = ROW * tracks.length + 4;
  const used = new Set(tracks.flatMap((track) => track.spans.map((span) => span.phase)));
  return [
    h("p", {class: "phases"},
      PHASES.filter((phase) => used.has(phase))
          .map((phase) => h("span", {key: phase}, h("i", {class: `phase-${phase}`}), phase))),
    h("div", {class: "chart", tabindex: 0, role: "group", "aria-label": "Timeline; the table below has the same parts"},
      h("svg", {class: "tracks", height, "aria-hidden": "true"},
        tracks.map((track, row) => h("text", {x: 0, y: row * ROW + 12}, track.name))),
      h("svg", {class: "slices", height, "aria-hidden": "true"},
        tracks.map(
            (track, row) =>
                track.spans.map((span) => h("rect", {
                                  x: `${(span.begin * scale).toFixed(3)}%`,
                                  y: row * ROW + 2,
                                  width: `${Math.max((span.end - span.begin) * scale, 0.05).toFixed(3)}%`,
                                  height: ROW - 4,
                                  class: PHASES.includes(span.phase) ? `phase-${span.phase}` : "phase-other",
                                  "data-slice": sliceText(track, span)
                                }))))),
  ];
}

// Returns the drawing, the same one for the same timeline. `slice`: what the pointer is on, or "".
export function timelineView(timeline, slice) {
  if (!drawn.has(timeline)) drawn.set(timeline, chartOf(timeline));
  const parts = timeline.spans.filter((span) => span.end > span.begin);
  return [
    h("h3", {},
      `${timeline.kind[0].toUpperCase()}${timeline.kind.slice(1)}${
          timeline.step === null ? "" : ` of step ${timeline.step}`}, ${duration(timeline.duration)}` +
          (timeline.ranks_left_out > 0 ? `; ${timeline.ranks_left_out} ranks are left out` : "")),
    timeline.error && timeline.result !== "nothing"
        ? h("p", {class: "bad-text"}, errorText(timeline.error),
            timeline.error.next ? h("span", {class: "next"}, " ", coded(timeline.error.next)) : null)
        : null,
    drawn.get(timeline),
    h("p", {class: "readout"}, slice || "Point at a slice to read it."),
    h("table", {class: "narrow", "aria-label": "Parts of the whole operation"},
      h("thead", {},
        h("tr", {},
          ["part", "took", "ended by"].map(
              (name) => h("th", {scope: "col", class: name === "took" ? "number" : null}, name)))),
      h("tbody", {},
        parts.map(
            (span, i) =>
                h("tr", {key: String(i)}, h("td", {}, span.phase),
                  h("td", {class: "number"}, duration(span.end - span.begin)),
                  h("td", {}, span.awaited_ranks.length > 0 ? ranksText(span.awaited_ranks) : ""))))),
  ];
}
