// Draws a value of each save as a bar, over the saves in their order; failed ones are marked.
import {h} from "./tree.mjs";

const HEIGHT = 112, TOP = 16, BOTTOM = 20;  // in pixels, of which the bars have what is between
const FEWEST_PLACES = 12;                   // a few bars are not drawn wide

// Returns the end of the axis: the least round number that is not below `most`. `base` is 10, or 1024 for bytes.
export function axisEnd(most, base = 10) {
  if (most <= 0) return 1;
  const steps = base === 10 ? [1, 2, 4, 5, 8, 10] : [1, 2, 4, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 800, 1024];
  const power = base ** Math.floor(Math.log(most) / Math.log(base) + 1e-9);
  return power * steps.find((step) => step * power >= most * (1 - 1e-9));
}

// Returns which of `places` bars have their step written below: at most `most`, the first and the last among them.
export function labelled(places, most) {
  if (places <= most) return Array.from({length: places}, (_, i) => i);
  return [...new Set(Array.from({length: most}, (_, i) => Math.round(i * (places - 1) / (most - 1))))];
}

// Returns a figure. `name`: what is drawn; `saves`: see savesOf; `valueOf(save)`: the height, or null if it is not
// known; `format(value)`: its text; `chosen`: the key of a save, or null.
export function plot({name, saves, valueOf, format, base = 10, chosen}) {
  const values = saves.map((save) => valueOf(save) ?? 0);
  const end = axisEnd(Math.max(0, ...values), base);
  const places = Math.max(saves.length, FEWEST_PLACES);
  const room = HEIGHT - TOP - BOTTOM;
  const floor = HEIGHT - BOTTOM;
  const y = (value) => floor - room * Math.min(value / end, 1);
  const x = (i) => `${(100 * i / places).toFixed(3)}%`;
  const middle = (i) => `${(100 * (i + 0.4) / places).toFixed(3)}%`;
  const width = `${(100 / places * 0.8).toFixed(3)}%`;
  const ticks = [0, end / 2, end];
  const bars = saves.map((save, i) => {
    const value = valueOf(save);
    return h(
        "g", {key: save.key, class: save.key === chosen ? "save chosen" : "save"},
        value === null || (save.failed && value === 0) ? null : h("rect", {
          x: x(i),
          y: y(value).toFixed(1),
          width,
          height: Math.max(floor - y(value), 1).toFixed(1),
          class: save.failed ? "bar failed" : "bar"
        }),
        save.failed ? h("text", {x: middle(i), y: (y(value ?? 0) - 3).toFixed(1), class: "mark"}, "×") : null,
        h("rect", {
          x: x(i),
          y: 0,
          width: `${(100 / places).toFixed(3)}%`,
          height: floor,
          class: "place",
          "data-save": save.key
        }));
  });
  // The first and the last one stay within the plot.
  const placing = (i) => (i === 0 ? "step first" : i === places - 1 ? "step last" : "step");
  const named = labelled(saves.length, 4).filter((i) => saves[i].step !== null);
  const names =
      named.map((i) => h("text", {key: `step ${i}`, x: middle(i), y: HEIGHT - 5, class: placing(i)}, saves[i].step));
  return h(
      "figure", {key: name, class: "plot"},
      h("figcaption", {}, h("b", {}, name), h("span", {class: "soft"}, ` up to ${format(Math.max(0, ...values))}`)),
      h("div", {class: "plot-body"},
        h("svg", {class: "axis", height: HEIGHT, "aria-hidden": "true"},
          ticks.map((tick) => h("text", {x: "100%", y: (y(tick) + 4).toFixed(1)}, tick === 0 ? "0" : format(tick)))),
        h("div", {
          class: "bars",
          tabindex: 0,
          role: "group",
          "data-plot": name,
          "aria-label": `${name} of ${saves.length} saves. The arrow keys choose one, Enter opens it.`
        },
          h("svg", {height: HEIGHT, "aria-hidden": "true"},
            ticks.map(
                (tick) =>
                    h("line", {x1: 0, x2: "100%", y1: y(tick).toFixed(1), y2: y(tick).toFixed(1), class: "grid"})),
            bars, names))));
}
