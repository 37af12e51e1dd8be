// Shows what happens now, what is wrong, and how the last saves went.
import {awaitedText, countsText, preparingText, rateOf, runningText, timeLeft, trainingText} from "./activity.mjs";
import {linkTo, operationName} from "./place.mjs";
import {plot} from "./plot.mjs";
import {behindText} from "./ranks.mjs";
import {usualInterval} from "./saves.mjs";
import {ago, count, counted, duration, errorText, size, time} from "./text.mjs";
import {coded, h} from "./tree.mjs";

export function alarmList(alarms) {
  if (alarms.length === 0)
    return h("p", {class: "fine"}, h("span", {class: "icon", "aria-hidden": "true"}, "✓ "), "Nothing is wrong.");
  return h(
      "ul", {class: "alarms"},
      alarms.map(
          (alarm) =>
              h("li", {key: alarm.key, class: alarm.severity},
                h("span", {class: "icon", role: "img", "aria-label": alarm.severity === "bad" ? "wrong" : "warning"},
                  alarm.severity === "bad" ? "✖ " : "▲ "),
                h("span", {}, alarm.text), h("span", {class: "next"}, " ", coded(alarm.next)))));
}

function activityCard(activity, samples, now, job) {
  const rate = rateOf(samples, activity);
  const left = timeLeft(activity, rate);
  const share = activity.total > 0 ? activity.done / activity.total : null;
  const facts = [
    ["phase", activity.phase + (activity.meaning ? `: ${activity.meaning}` : "")],
    [
      "done",
      activity.total > 0 ? `${size(activity.done)} of ${size(activity.total)} (${Math.floor(100 * share)}%)` : "–"
    ],
    ["rate", rate ? `${size(rate)}/s` : "–"],
    ["time left", left === null ? "–" : `about ${duration(left)}`],
    ["ranks", countsText(activity.counts) || "–"],
    ["waits for", awaitedText(activity).replace(/^waits for /, "") || "no late rank"],
    ["behind", behindText(job, activity) || "none, all ranks are as far"],
  ];
  return h(
      "div", {key: activity.key, class: "card now running"},
      h("p", {class: "headline"}, h("span", {class: "icon", "aria-hidden": "true"}, "● "),
        `${activity.name[0].toUpperCase()}${activity.name.slice(1)}: ${activity.phase}`,
        h("span", {class: "soft"}, ` ${runningText(activity, now)}`)),
      h("progress", {max: 1, value: share ?? 0, "aria-label": `${activity.name}, bytes done`}),
      h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      activity.transport ? h("p", {class: "soft"}, `Bytes between machines go by ${activity.transport}.`) : null,
      activity.error ? h("p", {class: "bad-text"}, errorText(activity.error)) : null,
      h("p", {}, h("a", {href: linkTo({job: job.job, view: "ranks"})}, "Ranks, worst first")));
}

// Returns for example "last commit: step 1,200, 12 min ago". `latest`: {step, time} or null.
export function commitText(latest, now) {
  if (latest === null) return "nothing was committed yet";
  return `last commit: step ${latest.step}` + (latest.time === null ? "" : `, ${ago(now - latest.time)}`);
}

// `latest`: see commitText. `saves`: see savesOf. `zone`: of the times.
export function nowCards({job, activities, samples, latest, saves, now, zone}) {
  if (activities.length > 0) return activities.map((each) => activityCard(each, samples, now, job));
  const usual = usualInterval(saves);
  const last = saves.findLast((save) => save.duration !== null) ?? null;
  const facts = [
    ["training", trainingText(job)],
    ["committed", latest?.time ? time(latest.time, zone) : "–"],
    ["usually", usual === null ? "–" : `a commit every ${duration(usual)}`],
    [
      "last save",
      last === null ? "–"
                    : `${last.failed ? "failed after" : "took"} ${duration(last.duration)}` +
              (last.failed ? "" : `, ${size(last.bytes)}`)
    ],
  ];
  const preparing = preparingText(job);
  return h(
      "div", {key: "idle", class: "card now"}, h("p", {class: "headline"}, `Nothing runs; ${commitText(latest, now)}.`),
      h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      job.trainers === 0
          ? h("p", {},
              coded(
                  "Start the training processes, and let each call `cairn.connect()`; then saves and loads show here."))
          : null,
      preparing ? h("p", {}, preparing) : null);
}

// Returns what the line below the plots says of a save.
export function saveText(save, zone, now) {
  const parts = [save.step === null ? "step not agreed" : `step ${save.step}`];
  if (save.failed) parts.push(`failed: ${errorText(save.error)}`);
  if (save.duration !== null) parts.push(`took ${duration(save.duration)}`);
  if (save.blocked !== null && !save.failed) parts.push(`training waited ${duration(save.blocked)} at most`);
  if (!save.failed) parts.push(size(save.bytes));
  if (save.time !== null) parts.push(`${time(save.time, zone)}, ${ago(now - save.time)}`);
  return parts.join(" · ");
}

export function plots({job, saves, picked, zone, now}) {
  if (saves.length === 0) {
    return h("p", {class: "soft"}, "No save has ended yet. The plots begin with the first one.");
  }
  const chosen = saves.find((save) => save.key === picked) ?? null;
  const shown = chosen ?? saves[saves.length - 1];
  const failed = saves.filter((save) => save.failed).length;
  const timed = saves.some((save) => save.duration !== null);
  const key = chosen?.key ?? null;
  const link = shown.timeline === null ? linkTo({job, view: "checkpoints", step: shown.step})
                                       : linkTo({job, view: "operations", operation: operationName(shown.timeline)});
  return [
    failed > 0 ? h("p", {key: "failed", class: "soft"}, h("b", {class: "bad-text"}, "× "),
                   `${counted(failed, "save")} of ${count(saves.length)} failed.`)
               : null,
    timed ? plot({
      name: "Training waits",
      saves,
      valueOf: (save) => (save.failed ? null : save.blocked),
      format: duration,
      chosen: key
    })
          : null,
    timed ? plot({name: "Duration", saves, valueOf: (save) => save.duration, format: duration, chosen: key}) : null,
    plot({
      name: "Bytes",
      saves,
      valueOf: (save) => (save.failed ? null : save.bytes),
      format: size,
      base: 1024,
      chosen: key
    }),
    h("p", {key: "readout", class: "readout", "aria-live": "polite"},
      chosen ? "" : "Last save: ", saveText(shown, zone, now), " ",
      h("a", {href: link, "data-open": "save"}, shown.timeline === null ? "checkpoint" : "timeline")),
    saves.some((save) => save.duration === null)
        ? h("p", {class: "soft"}, "Durations are known of saves since the coordinator started.")
        : null,
  ];
}
