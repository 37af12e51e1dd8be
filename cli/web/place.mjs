// What the page shows, as the part of its address behind the #, so that a link names it.

export const VIEWS = ["now", "checkpoints", "operations", "ranks"];

// Returns {job, view, step, operation}. What the address does not name, or names wrongly, is null; `view` is then
// "now".
export function placeOf(hash) {
  const named = new URLSearchParams(hash.replace(/^#/, ""));
  const step = named.get("step");
  const view = named.get("view");
  return {
    job: named.get("job") || null,
    view: VIEWS.includes(view) ? view : "now",
    step: step !== null && /^\d{1,12}$/.test(step) ? Number(step) : null,
    operation: named.get("operation") || null,
  };
}

export function linkTo({job = null, view = "now", step = null, operation = null}) {
  const named = new URLSearchParams();
  if (job !== null) named.set("job", job);
  if (view !== "now") named.set("view", view);
  if (step !== null) named.set("step", String(step));
  if (operation !== null) named.set("operation", operation);
  return `#${named}`;
}

// Names an ended operation. A coordinator that is restarted counts from 1 again, so its time belongs to the name.
export function operationName(timeline) {
  return `${timeline.id}@${timeline.begin_time}`;
}
