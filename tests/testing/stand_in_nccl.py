"""Agents that exchange bytes over the stand-in for NCCL. The fixture `controls` says what it does."""

from __future__ import annotations

import os
import pathlib
import re

from testing.stand_in_gpu import LIBRARY as LIBCUDA

LIBRARY = pathlib.Path(os.environ.get(
    "CAIRN_STAND_IN_NCCL", LIBCUDA.parents[1] / "nccl" / "libcairn_stand_in_nccl.so"))

# Runs with random faults have the seeds from FIRST on.
FIRST = int(os.environ.get("CAIRN_NCCL_SEED", "1"))
RUNS = 200 if os.environ.get("CAIRN_EXHAUSTIVE") else 4

FLAGS = {"coordinator_flags": ["--phase-timeout=60s", "--lease-ttl=2s"]}


def next_call(agent, choose) -> int:
    """Returns the number of a call of ncclGroupEnd that `agent` makes in its next exchange, if that is as long as its
    newest one, which was the first of its worker."""
    steps = int(re.findall(r"event=exchanged .* steps=(\d+)", agent.log.read_text())[-1])
    return steps + 1 + choose.randrange(steps)


def agent_flags(*more, nccl="auto", libnccl=LIBRARY, round_bytes="2MiB") -> list[str]:
    """Returns the flags of agents that share no memory, so that their bytes need a transport."""
    return ["--shared-memory=never", f"--round-bytes={round_bytes}", f"--nccl={nccl}", f"--libcuda={LIBCUDA}",
            f"--libnccl={libnccl}", *more]
