"""Runs the programs of tests/interop in which a trainer of another library trains on several ranks."""

import json
import os
import pathlib
import re
import subprocess
import sys

import cairn
from testing.ports import reserve_port

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "interop"
NUMBER = r"[-+\w.]+"


class Run:
    """What a run printed.

    Attributes:
      text: all of it.
      steps: step -> (loss, norm of the gradients).
      best: (step, metric, metric after the training), of each rank.
      idle: seconds of each step that saved nothing.
    """

    def __init__(self, text):
        self.steps = {int(step): (loss, norm) for step, loss, norm in
                      re.findall(rf"^step (\d+) loss ({NUMBER}) norm ({NUMBER})$", text, re.M)}
        self.text = text
        self.best = re.findall(rf"^best (\d+) metric ({NUMBER}) now ({NUMBER})$", text, re.M)
        self.idle = [float(seconds) for seconds in re.findall(r"^idle (\S+)$", text, re.M)]


def train(root, ranks, *runs, program):
    """Runs the ranks of a job, once for each list of arguments."""
    with reserve_port() as holder, cairn.local.Cluster(ranks=ranks, root=root) as cluster:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(holder.getsockname()[1]),
                       "PYTHONPATH": str(pathlib.Path(cairn.__file__).parents[1]), "DS_ACCELERATOR": "cpu"}
        done = subprocess.run([sys.executable, FOLDER / "example_worker.py", FOLDER / program,
                               json.dumps([agent.address for agent in cluster.agents]), json.dumps(list(runs))],
                              env=environment, cwd=root.parent, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return [Run(text) for text in done.stdout.split("-----")[:len(runs)]]
