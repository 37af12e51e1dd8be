"""Starts the processes of a pod and gives each its rank, as torchrun does: RANK, LOCAL_RANK, GROUP_RANK, WORLD_SIZE.

    python3 launcher.py PODS RANKS-PER-POD PROGRAM      with the pod's number in NODE_RANK

SIGTERM goes to all processes. The exit status is that of all, or 1 if they differ.
"""

import os
import signal
import subprocess
import sys


def main() -> int:
    pods, ranks, node = int(sys.argv[1]), int(sys.argv[2]), int(os.environ["NODE_RANK"])
    running: list[subprocess.Popen] = []
    # A handler of its own: the first process of a container is sent no signal that it has none for.
    signal.signal(signal.SIGTERM, lambda *_: [one.send_signal(signal.SIGTERM) for one in running])
    for local in range(ranks):
        places = {"RANK": node * ranks + local, "LOCAL_RANK": local, "GROUP_RANK": node, "WORLD_SIZE": pods * ranks,
                  "LOCAL_WORLD_SIZE": ranks}
        running.append(subprocess.Popen([sys.executable, *sys.argv[3:]],
                                        env=os.environ | {name: str(value) for name, value in places.items()}))
    ends = {one.wait() for one in running}
    return ends.pop() if len(ends) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
