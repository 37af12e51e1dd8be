"""Trains in a pod of the test: loads the last step, reshards, then counts steps and saves when the job agrees to.

It prints one line of JSON for everything that the test waits for.
"""

import json
import os
import signal
import sys
import time

import numpy as np

import cairn

ROWS, COLUMNS = 512, 1024


def whole(step: int) -> np.ndarray:
    """The job's matrix at a step: every byte of it follows from the step."""
    return np.random.Generator(np.random.PCG64(step)).integers(0, 2**63, (ROWS, COLUMNS), np.int64)


def say(**facts: object) -> None:
    os.write(1, (json.dumps(facts) + "\n").encode())  # whole, because all ranks of a pod have one pipe


def rows_of(matrix: np.ndarray, rank: int, world: int) -> cairn.Shard:
    part = ROWS // world
    return cairn.Shard(np.ascontiguousarray(matrix[rank * part:][:part]), matrix.shape, [rank * part, 0])


def columns_of(matrix: np.ndarray, rank: int, world: int) -> cairn.Shard:
    part = COLUMNS // world
    return cairn.Shard(np.ascontiguousarray(matrix[:, rank * part:][:, :part]), matrix.shape, [0, rank * part])


def resume(client: cairn.Client) -> int:
    if not client.checkpoints():
        return 0
    blank = np.zeros((ROWS, COLUMNS), np.int64)
    rows = rows_of(blank, client.rank, client.world_size)
    step = client.load({"w": rows}).step
    expected = whole(step)
    columns = columns_of(blank, client.rank, client.world_size)
    client.reshard({"w": rows}, {"w": columns})
    say(rank=client.rank, resumed=step,
        loaded=bool((rows.array == rows_of(expected, client.rank, client.world_size).array).all()),
        resharded=bool((columns.array == columns_of(expected, client.rank, client.world_size).array).all()))
    return step


def main() -> None:
    shared = os.statvfs("/dev/shm")
    client = cairn.connect(timeout=120)
    step = resume(client)
    with cairn.eviction.Watch(client) as eviction:
        say(rank=client.rank, training=step, uid=os.getuid(), pid=os.getpid(),
            shared_memory=shared.f_frsize * shared.f_blocks)
        while not eviction.over():
            step += 1
            state = {"w": rows_of(whole(step), client.rank, client.world_size)}
            client.report_step(step)
            if client.save_requested() is not None:
                client.save(step, state)
                say(rank=client.rank, saving=step)
            time.sleep(0.05)
    say(rank=client.rank, evicted=eviction.step, error=str(eviction.error or ""))
    client.close()
    # As if the signal had ended it: for Kubernetes, status 0 would complete the job.
    sys.exit(128 + signal.SIGTERM if eviction.error is None else 1)


if __name__ == "__main__":
    main()
