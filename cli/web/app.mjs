// Runs the page: asks the server, keeps what it said, and draws it. What is shown is decided in page.mjs.
import {activitiesOf, withSample} from "./activity.mjs";
import {draw} from "./drawing.mjs";
import {EMPTY, firstJob, pageOf} from "./page.mjs";
import {linkTo, operationName, placeOf} from "./place.mjs";
import {savesOf} from "./saves.mjs";
import {time} from "./text.mjs";

const RUNNING_MILLISECONDS = 1000;
const IDLE_MILLISECONDS = 2000;
const HIDDEN_MILLISECONDS = 15000;  // the title still tells
// What may be long, or is looked up in storage, is asked for again if it may have changed, and else so often.
const LISTS_MILLISECONDS = 10000;

// The token lives as long as the tab, and goes to this server in a header only.
let token = sessionStorage.getItem("cairn-token") ?? "";
let state = {...EMPTY, place: placeOf(location.hash), zone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC"};
let clockAhead = 0;  // seconds by which the server's clock is ahead of this one

const byId = (id) => document.getElementById(id);
const now = () => Date.now() / 1000 + clockAhead;

class Refused extends Error {}
class Failed extends Error {
  constructor(error) {
    super(error.message);
    this.error = error;
  }
}

async function ask(path) {
  let answer;
  try {
    answer = await fetch(
        path, {headers: {Authorization: `Bearer ${token}`}, cache: "no-store", signal: AbortSignal.timeout(30000)});
  } catch {
    throw new Failed({
      reason: "",
      message: "The server of this page does not answer.",
      next: "Start `cairn serve` again, with the same --listen; if the page comes through ssh or a proxy, look at that."
    });
  }
  const body = await answer.json().catch(() => null);
  if (answer.status === 401) throw new Refused(body?.error?.message ?? "the token was refused");
  if (answer.ok && body !== null) return body;
  throw new Failed(
      body?.error ?? {reason: "", message: `The server of this page answered ${answer.status}.`, next: ""});
}

function show() {
  const page = pageOf(state, now());
  draw(byId("page"), page.nodes);
  document.title = page.title;
  const as = state.asOf === null ? "" : `as of ${time(state.asOf, state.zone).split(" ")[1]}, `;
  byId("state").textContent = as + page.state;
}

function change(more) {
  state = {...state, ...more};
  show();
}

function showLogin(message) {
  byId("login").hidden = message === null;
  byId("page").hidden = message !== null;
  byId("refused").textContent = message ?? "";
  if (message === null) return;
  byId("state").textContent = "";
  document.title = "token needed · Cairn";
  if (document.activeElement === document.body) byId("token").focus();
}

// An answer about another job than the one that is shown now is of no use.
const stillOf = (job) => state.place.job === job;

// Storage is asked beside all else, because it may be slow.
let stored = {key: null, at: -Infinity, asking: false};
async function askStorage(key) {
  if (stored.asking || (key === stored.key && performance.now() - stored.at < LISTS_MILLISECONDS)) return;
  stored = {key, at: performance.now(), asking: true};
  const {job} = state.place;
  try {
    const jobs = (await ask("/api/stored_jobs")).jobs;
    change({stored: jobs});
    if (job !== null) {
      const {checkpoints, mirror} = await ask(`/api/checkpoints/${job}`);
      if (stillOf(job)) change({checkpoints, mirror});
    }
    change({reading: null});
  } catch (error) {
    if (error instanceof Failed && state.trouble === null) change({reading: error.error});
  } finally {
    stored.asking = false;
    nameJob();
  }
}

let timelines = {key: null, at: -Infinity};
async function askTimelines(job, key) {
  if (key === timelines.key && performance.now() - timelines.at < LISTS_MILLISECONDS) return;
  const answer = await ask(`/api/timelines/${job}`);
  timelines = {key, at: performance.now()};
  if (stillOf(job)) change({timelines: answer.timelines});
}

async function askOperation() {
  const {job, operation: name} = state.place;
  if (name === null || job === null) {
    if (state.operation !== null) change({operation: null, slice: ""});
    return;
  }
  if (state.operation?.name === name && (state.operation.timeline !== null || state.operation.error !== null)) return;
  change({operation: {name, timeline: null, error: null}, slice: ""});
  const gone =
      "The coordinator does not remember this operation any more: it keeps the last 100 of a job until it restarts.";
  let found = {name, timeline: null, error: gone};
  try {
    const timeline = await ask(`/api/timeline/${encodeURIComponent(name.split("@")[0])}/${job}`);
    if (operationName(timeline) === name) found = {name, timeline, error: null};
  } catch (error) {
    if (!(error instanceof Failed) || error.error.reason === "COORDINATOR_UNREACHABLE" || error.error.reason === "")
      throw error;
  }
  if (stillOf(job) && state.place.operation === name) change({operation: found});
}

// Puts the job into the address, so that a copied link names it.
function nameJob() {
  if (state.place.job !== null) return;
  const job = firstJob(state);
  if (job === null) return;
  history.replaceState(null, "", linkTo({...state.place, job}));
  state = {...state, place: {...state.place, job}};
  refresh();
}

async function askJob(job) {
  let answer = null;
  try {
    answer = await ask(`/api/job/${job}`);
  } catch (error) {
    if (!(error instanceof Failed) || !["JOB_NOT_FOUND", "BAD_JOB_NAME"].includes(error.error.reason)) throw error;
  }
  if (!stillOf(job)) return;
  const activities = answer === null ? [] : activitiesOf(answer);
  change(
      {job: answer, absent: answer === null, samples: withSample(state.samples, activities, performance.now() / 1000)});
  // What has ended, or was committed, changes one of these.
  const key = JSON.stringify([
    job, answer?.state, answer?.step, answer?.attempt, answer?.loads.map((load) => [load.number, load.state]),
    state.jobs.find((each) => each.job === job)?.last_committed_step
  ]);
  askStorage(key);
  if (answer !== null) await askTimelines(job, key);
  await askOperation();
}

let asking = false, again = false, timer = null;
async function refresh() {
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  clearTimeout(timer);
  try {
    if (token === "") throw new Refused("");
    const answer = await ask("/api/jobs");
    clockAhead = answer.now / 1000 - Date.now() / 1000;
    showLogin(null);
    change({jobs: answer.jobs, asOf: now(), trouble: null});
    nameJob();
    if (state.place.job === null)
      askStorage("");
    else
      await askJob(state.place.job);
  } catch (error) {
    if (error instanceof Refused)
      showLogin(error.message);
    else if (error instanceof Failed) {
      showLogin(null);
      change({trouble: {error: error.error}});
    } else
      throw error;
  } finally {
    asking = false;
    const running = state.job !== null && activitiesOf(state.job).length > 0;
    timer = setTimeout(
        refresh,
        again                 ? 0
            : document.hidden ? HIDDEN_MILLISECONDS
            : running         ? RUNNING_MILLISECONDS
                              : IDLE_MILLISECONDS);
    again = false;
  }
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem("cairn-token", token);
  byId("token").value = "";
  refresh();
});

addEventListener("hashchange", () => {
  const place = placeOf(location.hash);
  const same = place.job === state.place.job;
  state = {...state, place, slice: ""};
  if (!same)
    state = {
      ...state,
      job: null,
      absent: false,
      timelines: null,
      checkpoints: null,
      mirror: null,
      operation: null,
      samples: {},
      picked: null
    };
  if (!byId("page").hidden) show();
  refresh();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});

// The plots: the pointer or a tap chooses a save, and so do the arrow keys; Enter opens what the line below links to.
const page = byId("page");
const pick = (event) => {
  const {save, slice} = event.target.dataset ?? {};
  if (save !== undefined && save !== state.picked) change({picked: save});
  if (slice !== undefined && slice !== state.slice) change({slice});
};
page.addEventListener("pointerover", pick);
page.addEventListener("click", pick);
page.addEventListener("keydown", (event) => {
  if (event.target.dataset?.plot === undefined) return;
  const keys = savesOf(state.timelines ?? [], state.checkpoints ?? []).map((save) => save.key);
  const at = state.picked === null ? keys.length - 1 : keys.indexOf(state.picked);
  const to = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: keys.length - 1}[event.key];
  if (to !== undefined) {
    event.preventDefault();
    change({picked: keys[Math.max(0, Math.min(to, keys.length - 1))]});
  } else if (event.key === "Enter") {
    page.querySelector("[data-open]")?.click();
  }
});
refresh();
