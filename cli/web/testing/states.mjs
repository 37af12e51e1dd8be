// Answers of the server, made up for tests.

export const NOW = Date.parse("2026-11-29T12:00:00Z") / 1000;
export const at = (seconds) => new Date(1000 * (NOW - seconds)).toISOString().replace(/\.\d+Z/, "Z");
export const error = (reason, message, next = "") => ({code: "", reason, message, metadata: {}, next});

export function agent(rank, more = {}) {
  return {
    rank,
    node: `node-${rank}`,
    address: "",
    last_heard_seconds: 0.5,
    trainer_attached: true,
    current_step: 120,
    trainer_step: 120,
    trainer_step_age_seconds: 1,
    trainer_state: "running",
    trainer_state_age_seconds: 90000,
    ...more
  };
}

export function progress(rank, more = {}) {
  return {
    rank,
    phase: "writing",
    bytes_done: 50,
    bytes_total: 100,
    late: false,
    idle_seconds: 0,
    node: `node-${rank}`,
    note: "",
    ...more
  };
}

// A job of four ranks that trains, and of which nothing runs.
export function job(more = {}) {
  return {
    job: "llm",
    step: 100,
    state: "COMMITTED",
    attempt: 1,
    phase: "committed",
    ranks: [],
    error: null,
    warning: null,
    world_size: 4,
    trainers: 4,
    ranks_left_out: false,
    registered: 4,
    create_time: at(60),
    bytes_done: 0,
    bytes_total: 0,
    phase_counts: [],
    transport: null,
    lowest_step: 120,
    highest_step: 122,
    layouts_awaited: 0,
    layout_awaited_ranks: [],
    agents: [0, 1, 2, 3].map((rank) => agent(rank)),
    last_committed: null,
    stalled_storage_calls: 0,
    loads: [],
    ...more
  };
}

export const saving = (more = {}) => job({
  step: 200,
  state: "WRITING",
  create_time: at(12),
  bytes_done: 200,
  bytes_total: 400,
  ranks: [0, 1, 2, 3].map((rank) => progress(rank)),
  phase_counts: [{phase: "writing", ranks: 4, late: 0}],
  ...more
});

export const load = (more = {}) => ({
  number: 1,
  state: "READING",
  step: 100,
  reshard: false,
  ranks: [],
  phase_counts: [],
  bytes_done: 0,
  bytes_total: 0,
  transport: null,
  error: null,
  ...more
});

export function summary(more = {}) {
  return {
    job: "llm",
    state: "training",
    world_size: 4,
    agents: 4,
    trainers: 4,
    trainers_halted: 0,
    last_committed_step: 100,
    removals_refused: 0,
    last_commit_time: null,
    error: null,
    ...more
  };
}

export function checkpoint(step, more = {}) {
  return {
    job: "llm",
    step,
    state: "COMMITTED",
    attempt: 1,
    pinned: false,
    tags: [],
    commit_time: at(700),
    bytes: 4096,
    world_size: 4,
    continues_step: null,
    metrics: {},
    warning: null,
    ...more
  };
}

export const damaged = (step) => ({
  job: "llm",
  step,
  state: "DAMAGED",
  attempt: 1,
  pinned: false,
  tags: [],
  commit_time: null,
  bytes: null,
  world_size: null,
  error: error("MANIFEST_CORRUPT", "it cannot be read", "Run `cairn repair`.")
});

export const span = (phase, begin, end, awaited_ranks = []) => ({phase, begin, end, awaited_ranks});

// A save that began `age` seconds ago and took ten, of which training waited for two.
export function timeline(id, step, age, more = {}) {
  return {
    id,
    kind: "save",
    step,
    attempt: 1,
    begin_time: at(age),
    duration: 10,
    bytes: 4096,
    world_size: 4,
    result: "done",
    error: null,
    spans: [span("call", 0, 1), span("stage", 1, 2), span("write", 2, 9, [3]), span("commit", 9, 10)],
    ranks: [],
    ranks_left_out: 0,
    ...more
  };
}

export const failedSave = (id, step, age) => timeline(
    id, step, age, {result: "RANK_LATE", error: error("RANK_LATE", "rank 3 made no progress", "Look at node-3.")});
