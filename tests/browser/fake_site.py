"""Plays `cairn serve` with jobs that are made up, so that a browser can show any number of ranks and any trouble.

It serves the page's real files, and answers its questions from a `Story`. tests/integration/test_serve.py compares the
keys of its answers with those of the real `cairn serve`.
"""

from __future__ import annotations

import dataclasses
import datetime
import http.server
import json
import math
import pathlib
import threading
import time
import urllib.parse

FILES = pathlib.Path(__file__).resolve().parents[2] / "cli/web"
TYPES = {".html": "text/html", ".css": "text/css", ".mjs": "text/javascript"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
TOKEN = "fake-0123456789abcdef"
GIB = 1 << 30


def stamp(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def error(reason: str, message: str, next_: str = "") -> dict:
    return {"code": "UNAVAILABLE", "reason": reason, "message": message, "metadata": {}, "next": next_}


UNREACHABLE = error(
    "COORDINATOR_UNREACHABLE",
    "coordinator 10.0.0.1:7420: connection refused",
    "Check --coordinator and that the coordinator runs; `cairn doctor` tries the connection.",
)


@dataclasses.dataclass
class Story:
    """What the fake coordinator knows. Times are seconds before `now`, which stands still if it is given."""

    job: str = "llm"
    ranks: int = 4
    missing: tuple[int, ...] = ()
    trainers: bool = True
    running: str | None = None  # "save", "load", "reshard"
    share: float = 0.4  # of its bytes
    late: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    saves: int = 30
    failed: tuple[int, ...] = ()  # of the saves, counted from the oldest
    last_commit: float = 720
    stalled: int = 0
    registered: bool = True  # False: the job has only checkpoints
    jobs: bool = True  # False: there is no job at all
    unreachable: bool = False
    node: str = "node-{}"
    message: str = "rank 3 made no progress for 300 s"
    now: float = dataclasses.field(default_factory=time.time)

    def here(self) -> list[int]:
        return [rank for rank in range(self.ranks) if rank not in self.missing] if self.registered else []

    def shown(self) -> list[int]:
        """A coordinator shows all ranks of a job up to 1,024, and of a larger one those that are worth a look."""
        here = self.here()
        return here if self.ranks <= 1024 else [r for r in here if r in self.late or r in self.stopped or r < 100][:128]

    def steps(self) -> list[int]:
        return [100 * (i + 1) for i in range(self.saves)]

    def time_of(self, i: int) -> float:
        return self.now - self.last_commit - 600 * (self.saves - 1 - i)

    def summary(self) -> dict:
        committed = [step for i, step in enumerate(self.steps()) if i not in self.failed]
        agents = len(self.here())
        state = (
            "stored"
            if not agents
            else {"save": "saving", "load": "loading", "reshard": "loading"}[self.running]
            if self.running
            else "stopped"
            if self.stopped
            else "training"
            if self.trainers and not self.missing
            else "waiting"
        )
        return {
            "job": self.job,
            "state": state,
            "world_size": self.ranks if agents else 0,
            "agents": agents,
            "trainers": agents if self.trainers else 0,
            "trainers_halted": len(self.stopped),
            "last_committed_step": committed[-1] if committed else None,
            "removals_refused": 0,
            "last_commit_time": None,
            "error": None,
        }

    def progress(self) -> list[dict]:
        shown = []
        for rank in self.shown():
            late = rank in self.late
            share = 0.05 if late else self.share * (0.7 + 0.3 * math.sin(rank) ** 2)
            phase = "writing" if self.running == "save" else "reading"
            shown.append(
                {
                    "rank": rank,
                    "phase": phase,
                    "bytes_done": int(share * 4 * GIB),
                    "bytes_total": 4 * GIB,
                    "late": late,
                    "idle_seconds": 41.5 if late else 0.2,
                    "node": self.node.format(rank // 8),
                    "note": "no progress for 41.5 s" if late else "",
                }
            )
        return shown

    def counts(self) -> list[dict]:
        here = len(self.here())
        return [
            {
                "phase": "writing" if self.running == "save" else "reading",
                "ranks": here - here // 3,
                "late": len(self.late),
            },
            {"phase": "written" if self.running == "save" else "done", "ranks": here // 3, "late": 0},
        ]

    def answer_job(self) -> dict:
        saving, loading = self.running == "save", self.running in ("load", "reshard")
        total = 4 * GIB * len(self.here())
        step = self.steps()[-1] if self.saves else 0
        ended = (
            {"state": None, "phase": None, "step": None}
            if not self.saves
            else {"state": "COMMITTED", "phase": "committed", "step": step}
        )
        load = {
            "number": 3,
            "state": "READING",
            "step": None if self.running == "reshard" else step,
            "reshard": self.running == "reshard",
            "ranks": self.progress(),
            "phase_counts": self.counts(),
            "bytes_done": int(self.share * total),
            "bytes_total": total,
            "transport": None,
            "error": None,
        }
        return {
            "job": self.job,
            **({"state": "WRITING", "phase": "writing", "step": step + 100} if saving else ended),
            "attempt": 1,
            "ranks": self.progress() if saving else [],
            "error": None,
            "warnings": [],
            "world_size": self.ranks,
            "trainers": len(self.here()) if self.trainers else 0,
            "ranks_left_out": self.ranks > 1024,
            "registered": len(self.here()),
            "create_time": stamp(self.now - 12),
            "bytes_done": int(self.share * total) if saving else 0,
            "bytes_total": total if saving else 0,
            "phase_counts": self.counts() if saving else [],
            "transport": None,
            "lowest_step": step + 3 if self.trainers else None,
            "highest_step": step + 5 if self.trainers else None,
            "layouts_awaited": 0,
            "layout_awaited_ranks": [],
            "agents": [
                {
                    "rank": rank,
                    "node": self.node.format(rank // 8),
                    "address": f"10.0.0.{rank % 250}:7421",
                    "last_heard_seconds": 0.4,
                    "trainer_attached": self.trainers,
                    "current_step": step + 3 + rank % 3 if self.trainers else None,
                    "trainer_step": step + 3 + rank % 3 if self.trainers else None,
                    "trainer_step_age_seconds": 1.5 if self.trainers else None,
                    "trainer_state": "stopped" if rank in self.stopped else "running" if self.trainers else None,
                    "trainer_state_age_seconds": (95.0 if rank in self.stopped else 90000.0) if self.trainers else None,
                }
                for rank in self.shown()
            ],
            "last_committed": None,
            "stalled_storage_calls": self.stalled,
            "loads": [load] if loading else [],
        }

    def answer_checkpoints(self) -> list[dict]:
        listed = []
        for i, step in enumerate(self.steps()):
            if i in self.failed:
                continue
            each = {
                "job": self.job,
                "step": step,
                "state": "SUPERSEDED" if i == 4 else "COMMITTED",
                "attempt": 1,
                "pinned": i == 2,
                "tags": ["best", "before-the-new-data"] if i == 6 else [],
                "commit_time": stamp(self.time_of(i)),
                "bytes": int(4 * GIB * self.ranks * (1 + 0.02 * math.sin(i))),
                "world_size": self.ranks,
                "continues_step": None,
                "metrics": {"loss": 3.5 / (1 + i / 7), "accuracy": 0.3 + i / 100, "learning_rate": 3e-4},
                "warnings": [
                    error(
                        "REPLICA_MISMATCH", "replicas of lm_head.weight differ on ranks 1 and 5", "Look at the ranks."
                    )
                ]
                if i == 9
                else [],
            }
            if i == 11:
                each = {
                    **{key: each[key] for key in ("job", "step", "attempt", "pinned", "tags")},
                    "state": "DAMAGED",
                    "commit_time": None,
                    "bytes": None,
                    "world_size": None,
                    "error": error(
                        "MANIFEST_CORRUPT",
                        "the manifest's digest does not fit",
                        f"Run `cairn repair {self.job}@{step}`.",
                    ),
                }
            listed.append(each)
        return listed[::-1]

    def timeline(self, i: int, ranks: bool) -> dict:
        failed = i in self.failed
        took = 9 + 3 * math.sin(i) + (20 if i == 14 else 0)
        stage = 0.5 + 0.3 * math.cos(i) ** 2
        names = [("call", 0, 0.1), ("plan", 0.1, 0.15), ("stage", 0.15, stage), ("write", stage, took - 0.2)]
        names += [("abort" if failed else "commit", took - 0.2, took)]
        spans = [
            {"phase": phase, "begin": begin, "end": end, "awaited_ranks": [3] if phase == "write" else []}
            for phase, begin, end in names
        ]
        each_rank = [
            {"rank": rank, "spans": [{**span, "awaited_ranks": []} for span in spans]}
            for rank in range(min(self.ranks, 256))
        ]
        return {
            "id": i + 1,
            "kind": "save",
            "step": self.steps()[i],
            "attempt": 1,
            "begin_time": stamp(self.time_of(i) - took),
            "duration": took,
            "bytes": 0 if failed else int(4 * GIB * self.ranks * (1 + 0.02 * math.sin(i))),
            "world_size": self.ranks,
            "result": "RANK_LATE" if failed else "done",
            "error": error("RANK_LATE", self.message, "Look at node-0.") if failed else None,
            "spans": spans,
            "ranks": each_rank if ranks else [],
            "ranks_left_out": max(self.ranks - 256, 0) if ranks else 0,
        }

    def answer(self, question: str, rest: str) -> tuple[int, dict]:
        if self.unreachable:
            return 503, {"error": UNREACHABLE}
        if question == "jobs":
            return 200, {"now": int(self.now * 1000), "jobs": [self.summary()] if self.jobs and self.registered else []}
        if question == "stored_jobs":
            stored = {
                **self.summary(),
                "last_commit_time": stamp(self.time_of(self.steps().index(self.summary()["last_committed_step"])))
                if self.saves
                else None,
            }
            return 200, {"jobs": [stored] if self.jobs else []}
        name = rest.partition("/")[2] if question == "timeline" else rest
        if name != self.job or not self.jobs:
            return (
                (404, {"error": error("JOB_NOT_FOUND", f"no job {name}")})
                if question in ("job", "timeline")
                else (200, {question: []})
            )
        if question == "job":
            return (
                (200, self.answer_job())
                if self.registered
                else (404, {"error": error("JOB_NOT_FOUND", "no agent is registered")})
            )
        if question == "checkpoints":
            return 200, {"checkpoints": self.answer_checkpoints()}
        if question == "timelines":
            return 200, {"timelines": [self.timeline(i, False) for i in reversed(range(self.saves))]}
        return 200, self.timeline(int(rest.partition("/")[0]) - 1, True)


class FakeSite:
    """Serves `story`, which a test may replace at any time, at `port`."""

    def __init__(self, story: Story, port: int = 0) -> None:
        self.story = story
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
                question, _, rest = path.removeprefix("/api/").partition("/")
                file = FILES / ("index.html" if path == "/" else path[1:])
                if path.startswith("/api/"):
                    allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
                    status, body = (
                        site.story.answer(question, rest)
                        if allowed
                        else (401, {"error": error("BAD_TOKEN", "this is not the token of the page")})
                    )
                    self.reply(status, "application/json", json.dumps(body).encode())
                elif file.parent == FILES and file.suffix in TYPES and file.exists():
                    self.reply(200, TYPES[file.suffix], file.read_bytes())
                else:
                    self.reply(404, "application/json", b"{}")

            def reply(self, status: int, type_: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", type_)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", POLICY)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.token = TOKEN
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> FakeSite:
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()
