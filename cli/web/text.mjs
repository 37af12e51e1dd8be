// Writes numbers, times and lists for people.

// Returns for example "4,096".
export function count(value) {
  return Math.round(value).toLocaleString("en-US");
}

// Returns for example "1 rank" or "4,096 ranks".
export function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

// Returns for example "1.5 GiB".
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) {
    bytes /= 1024;
    ++unit;
  }
  return `${unit === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

// Returns a duration in two units at most, for example "12 ms", "4.2 s", "3 min 20 s" or "2 d 4 h".
export function duration(seconds) {
  if (seconds < 0.9995) return `${Math.round(Math.max(seconds, 0) * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  return long(seconds);
}

function long(seconds) {
  const whole = Math.round(seconds);
  const parts = [
    [Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"], [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"]
  ];
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return "0 s";
  return parts.slice(first, first + 2)
      .filter(([value]) => value > 0)
      .map(([value, unit]) => `${value} ${unit}`)
      .join(" ");
}

// Returns how long ago something was, for example "35 s ago" or "12 min ago". The clocks of two machines may differ, so
// what seems to lie ahead is now.
export function ago(seconds) {
  if (seconds < 1) return "just now";
  return `${seconds < 60 ? `${Math.floor(seconds)} s` : long(seconds).split(" ").slice(0, 2).join(" ")} ago`;
}

// Returns seconds since 1970, or null. `text`: for example "2026-11-29T03:41:41Z".
export function secondsOf(text) {
  const milliseconds = text ? Date.parse(text) : NaN;
  return Number.isNaN(milliseconds) ? null : milliseconds / 1000;
}

// Returns for example "2026-11-29 04:41:41" in the time zone `zone`, as "Europe/Berlin".
export function time(seconds, zone) {
  if (seconds === null) return "";
  const format = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone,
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23"
  });
  const part =
      Object.fromEntries(format.formatToParts(new Date(seconds * 1000)).map((each) => [each.type, each.value]));
  return `${part.year}-${part.month}-${part.day} ${part.hour}:${part.minute}:${part.second}`;
}

// Returns for example "3, 7 and 2 more".
export function listed(items, most = 4) {
  const named = items.slice(0, most).join(", ");
  return items.length > most ? `${named} and ${count(items.length - most)} more` : named;
}

// Returns for example "rank 3" or "ranks 3, 7 and 2 more".
export function ranksText(ranks, most = 4) {
  return `${ranks.length === 1 ? "rank" : "ranks"} ${listed(ranks, most)}`;
}

// Returns a measured number in at most `digits` digits.
export function number(value, digits = 6) {
  if (typeof value !== "number") return String(value);  // "NaN", "Infinity"
  return Number.isInteger(value) && Math.abs(value) < 1e9 ? count(value) : String(Number(value.toPrecision(digits)));
}

// Returns for example "RANK_LATE: rank 3 made no progress.", so that more can follow.
export function errorText(error) {
  if (!error) return "";
  const text = error.reason ? `${error.reason}: ${error.message}` : error.message;
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
