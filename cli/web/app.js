// Draws jobs, saves, loads, ranks and timelines. Text reaches the page only as text, so no name can become markup.
"use strict";

const POLL_MILLISECONDS = 1000;
const ROWS_SHOWN = 2000;
const SVG = "http://www.w3.org/2000/svg";
const PHASES = ["call", "wait", "plan", "prepare", "stage", "order", "write", "read", "commit", "abort"];

// The token lives as long as the tab, and goes to this server in a header only.
let token = sessionStorage.getItem("cairn-token") || "";
let chosenJob = null;
let chosenOperation = null;
let operationsShown = "";
// The list of checkpoints may be long, so it is asked for again only if it may have changed.
let checkpointsShown = "";
let checkpointsTime = 0;
const CHECKPOINTS_MILLISECONDS = 10000;

const byId = (id) => document.getElementById(id);

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = String(text);
  if (className) made.className = className;
  return made;
}

function link(text, action) {
  const button = element("button", text, "link");
  button.type = "button";
  button.addEventListener("click", action);
  return button;
}

// `rows` are lists of cells: text, a number, or an element. `late` says which rows are red.
function fill(table, head, rows, classOf = () => "") {
  const body = document.createElement("tbody");
  for (const row of rows.slice(0, ROWS_SHOWN)) {
    const line = element("tr", null, classOf(row));
    for (const cell of row) {
      const data = element("td", cell instanceof Node ? null : cell, /^[0-9]/.test(cell) ? "number" : "");
      if (cell instanceof Node) data.append(cell);
      line.append(data);
    }
    body.append(line);
  }
  const headRow = document.createElement("tr");
  for (const name of head) headRow.append(element("th", name));
  const headPart = document.createElement("thead");
  headPart.append(headRow);
  table.replaceChildren(headPart, body);
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) {
    bytes /= 1024;
    ++unit;
  }
  return `${unit === 0 ? bytes : bytes.toFixed(1)} ${units[unit]}`;
}

function seconds(value) {
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  return value < 60 ? `${value.toFixed(1)} s` : `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
}

class Refused extends Error {}

async function ask(path) {
  const answer = await fetch(path, {headers: {Authorization: `Bearer ${token}`}, cache: "no-store"});
  const body = await answer.json();
  if (answer.status === 401) throw new Refused(body.error.message);
  if (!answer.ok) throw new Error(`${body.error.reason}: ${body.error.message}`);
  return body;
}

function showJobs(jobs) {
  fill(byId("jobs"), ["job", "agents", "under way", "last step"],
       jobs.map((job) => [link(job.job, () => choose(job.job)), `${job.agents} of ${job.world_size}`,
                          job.saves_running + job.loads_running, job.last_committed_step ?? ""]),
       (row) => (row[0].textContent === chosenJob ? "chosen" : ""));
}

function rankTable(ranks) {
  const table = document.createElement("table");
  // Those that others wait for come first.
  const order = [...ranks].sort((a, b) => b.late - a.late || a.bytes_done / (a.bytes_total || 1) - b.bytes_done / (b.bytes_total || 1));
  fill(table, ["rank", "node", "phase", "done", "of", "note"],
       order.map((rank) => [rank.rank, rank.node, rank.phase, size(rank.bytes_done), size(rank.bytes_total),
                            rank.late ? `LATE ${rank.note}` : rank.note]),
       (row) => (String(row[5]).startsWith("LATE") ? "late" : ""));
  return table;
}

// Of a large job only the ranks worth a look are listed.
function countsText(counts) {
  return "ranks: " + counts.map((each) => `${each.phase} ${each.ranks}` + (each.late > 0 ? ` (${each.late} late)` : ""))
                           .join(", ");
}

function showJob(job) {
  byId("job-name").textContent = job.job;
  const missing = job.world_size - job.registered;
  byId("job-head").textContent = `${job.registered} of ${job.world_size} agents` +
    (missing > 0 ? `, ${missing} missing` : "") +
    (job.last_committed ? `; latest committed: step ${job.last_committed.step}, ${size(job.last_committed.bytes)}` : "");
  const running = [];
  if (job.state !== null) {
    running.push(element("p", `save of step ${job.step ?? "not agreed yet"}: ${job.state}`));
    if (job.error) running.push(element("p", `${job.error.reason}: ${job.error.message}`, "error"));
    if (job.ranks_left_out) running.push(element("p", countsText(job.phase_counts)));
    if (job.ranks.length > 0) running.push(rankTable(job.ranks));
  }
  for (const load of job.loads.filter((each) => each.phase_counts.length > 0)) {
    running.push(element("p", `load ${load.number}: ${load.state}`));
    if (job.ranks_left_out) running.push(element("p", countsText(load.phase_counts)));
    if (load.ranks.length > 0) running.push(rankTable(load.ranks));
  }
  byId("running").replaceChildren(...(running.length > 0 ? running : [element("p", "nothing")]));
  fill(byId("ranks"), ["rank", "node", "trainer", "step"],
       job.agents.map((agent) => [agent.rank, agent.node, trainerText(agent), agent.current_step ?? ""]),
       (row) => (["attached", "none", "gone"].includes(row[2]) ? "" : "late"));
  byId("job").hidden = false;
}

function trainerText(agent) {
  if (!agent.trainer_attached) return agent.trainer_state === "gone" ? "gone" : "none";
  return [null, "running"].includes(agent.trainer_state) ? "attached" : agent.trainer_state;
}

function showCheckpoints(checkpoints) {
  fill(byId("checkpoints"), ["step", "state", "committed", "size", "ranks"],
       checkpoints.map((each) => [each.step, each.state, each.commit_time ?? "",
                                  each.bytes === null ? "" : size(each.bytes), each.world_size ?? ""]),
       (row) => (row[1] === "DAMAGED" ? "late" : ""));
}

function showOperations(timelines) {
  const now = JSON.stringify([timelines.map((each) => each.id), chosenOperation]);
  if (now === operationsShown) return;
  operationsShown = now;
  fill(byId("operations"), ["operation", "step", "began", "took", "result", "longest part"],
       timelines.map((each) => {
         const longest = each.spans.reduce((a, b) => (b.end - b.begin > a.end - a.begin ? b : a), each.spans[0]);
         return [link(`${each.kind} ${each.id}`, () => chooseOperation(each)), each.step ?? "", each.begin_time,
                 seconds(each.duration), each.result,
                 longest ? `${longest.phase} ${seconds(longest.end - longest.begin)}` +
                   (longest.awaited_ranks.length > 0 ? `, for rank ${longest.awaited_ranks.join(", ")}` : "") : ""];
       }),
       (row) => (row[4] === "done" || row[4] === "nothing" ? "" : "late"));
}

function svgElement(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function drawTimeline(timeline) {
  // The names of tracks take the left part. Percentages keep text as it is, however wide the page.
  const rowHeight = 16, left = 9, width = 91;
  const tracks = [{name: "all ranks", spans: timeline.spans},
                  ...timeline.ranks.map((rank) => ({name: `rank ${rank.rank}`, spans: rank.spans}))];
  const height = rowHeight * tracks.length + 4;
  const svg = svgElement("svg", {height, role: "img", "aria-label": "timeline"});
  const scale = width / Math.max(timeline.duration, 1e-9);
  tracks.forEach((track, row) => {
    const label = svgElement("text", {x: 2, y: row * rowHeight + 12});
    label.textContent = track.name;
    svg.append(label);
    for (const span of track.spans) {
      const bar = svgElement("rect", {x: `${left + span.begin * scale}%`, y: row * rowHeight + 2,
                                      width: `${Math.max((span.end - span.begin) * scale, 0.05)}%`,
                                      height: rowHeight - 4, class: span.phase});
      const text = `${track.name}: ${span.phase}, ${seconds(span.end - span.begin)}` +
        (span.awaited_ranks.length > 0 ? `, waits for rank ${span.awaited_ranks.join(", ")}` : "");
      const title = svgElement("title", {});
      title.textContent = text;
      bar.append(title);
      bar.addEventListener("mouseenter", () => { byId("slice").textContent = text; });
      svg.append(bar);
    }
  });
  byId("timeline-name").textContent = `${timeline.kind} ${timeline.step === null ? "" : `of step ${timeline.step}`}, ` +
    `${seconds(timeline.duration)}` + (timeline.ranks_left_out > 0 ? `; ${timeline.ranks_left_out} ranks are left out` : "");
  const used = new Set(tracks.flatMap((track) => track.spans.map((span) => span.phase)));
  byId("legend").replaceChildren(...PHASES.filter((phase) => used.has(phase)).map((phase) => {
    const entry = element("span");
    entry.append(element("i", null, phase), phase);
    return entry;
  }));
  byId("chart").replaceChildren(svg);
  byId("timeline").hidden = false;
}

async function chooseOperation(operation) {
  chosenOperation = operation.id;
  drawTimeline(await ask(`/api/timeline/${operation.id}/${chosenJob}`));
}

function choose(job) {
  chosenJob = job;
  chosenOperation = null;
  operationsShown = "";
  byId("timeline").hidden = true;
  refresh();
}

let refreshing = false;
async function refresh() {
  if (refreshing || document.hidden) return;
  refreshing = true;
  try {
    const jobs = (await ask("/api/jobs")).jobs;
    byId("login").hidden = true;
    byId("page").hidden = false;
    if (chosenJob === null && jobs.length > 0) chosenJob = jobs[0].job;
    showJobs(jobs);
    const job = chosenJob;
    if (job !== null) {
      const [state, timelines] = await Promise.all([ask(`/api/job/${job}`), ask(`/api/timelines/${job}`)]);
      if (job === chosenJob) {
        showJob(state);
        showOperations(timelines.timelines);
        const last = JSON.stringify([job, state.last_committed]);
        if (last !== checkpointsShown || Date.now() - checkpointsTime > CHECKPOINTS_MILLISECONDS) {
          showCheckpoints((await ask(`/api/checkpoints/${job}`)).checkpoints);
          checkpointsShown = last;
          checkpointsTime = Date.now();
        }
      }
    }
    byId("state").textContent = `as of ${new Date().toLocaleTimeString()}`;
    byId("state").className = "";
  } catch (error) {
    if (error instanceof Refused) {
      byId("login").hidden = false;
      byId("page").hidden = true;
      byId("state").textContent = token === "" ? "" : error.message;
    } else {
      byId("state").textContent = error.message;
    }
    byId("state").className = "error";
  } finally {
    refreshing = false;
  }
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem("cairn-token", token);
  byId("token").value = "";
  refresh();
});
setInterval(refresh, POLL_MILLISECONDS);
refresh();
