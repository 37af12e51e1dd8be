"""Is one rank of a job for test_checkpoint_manager.py: trains until it is told to end, and logs the steps it did."""

import signal
import sys
import time

import torch

import cairn
from cairn.torch import CheckpointManager


def main() -> None:
    own_handler = "--own-handler" in sys.argv
    if own_handler:
        signal.signal(signal.SIGTERM, lambda number, frame: print("own handler", flush=True))
    with cairn.connect() as client, CheckpointManager(client, every_steps=10**9, keep_last=5) as manager, \
            open(sys.argv[1], "w") as log:
        for step in range(1, 1_000_000):
            print(step, file=log, flush=True)
            manager.step(step, {"w": torch.full((8,), float(step))})
            if manager.should_stop:
                print("should stop", flush=True)
                return
            time.sleep(0.002)  # a step of training


if __name__ == "__main__":
    main()
