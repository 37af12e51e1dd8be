// Makes tables from columns: {name, cell(row), wide, className}. A column that is `wide` is left out on narrow screens.
import {h} from "./tree.mjs";

// `keyOf(row)` names a row; `classOf(row)` colours it; `below(row)` is shown under it in a row of its own, or null.
export function table({name, columns, rows, keyOf, classOf = () => null, below = () => null}) {
  const classFor = (column) => [column.className, column.wide ? "wide" : null].filter(Boolean).join(" ") || null;
  return h(
      "table", {"aria-label": name},
      h("thead", {},
        h("tr", {}, columns.map((column) => h("th", {scope: "col", class: classFor(column)}, column.name)))),
      h("tbody", {}, rows.flatMap((row) => {
        const more = below(row);
        return [
          h("tr", {key: keyOf(row), class: classOf(row)},
            columns.map((column) => h("td", {class: classFor(column)}, column.cell(row)))),
          more === null
              ? null
              : h("tr", {key: `${keyOf(row)} below`, class: "below"}, h("td", {colspan: columns.length}, more))
        ];
      })));
}
