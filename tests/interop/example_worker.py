"""Runs an example's ranks, several times one after the other. What the example imports is imported once.

    example_worker.py PROGRAM AGENTS RUNS       both in JSON: a list of addresses, a list of lists of arguments

It prints what the ranks of each run print, and after each run a line of dashes. It ends with 1 if a rank fails.
"""

import json
import os
import runpy
import sys
import traceback


def run_rank(main, rank: int, agent: str) -> None:
    """Is the whole life of a rank's process, which ends without Python's finalization: gloo's threads may abort it."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), CAIRN_AGENT=agent)
    status = 1
    try:
        main()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    program, agents, runs = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    os.environ.update(WORLD_SIZE=str(len(agents)), LOCAL_WORLD_SIZE=str(len(agents)), MASTER_ADDR="127.0.0.1",
                      GLOO_SOCKET_IFNAME="lo")
    example = runpy.run_path(program)
    for arguments in runs:
        sys.argv = [program, *arguments]
        sys.stdout.flush()
        ranks = []
        for rank, agent in enumerate(agents):
            pid = os.fork()
            if pid == 0:
                run_rank(example["main"], rank, agent)
            ranks.append(pid)
        if any([os.waitpid(pid, 0)[1] for pid in ranks]):
            sys.exit(1)
        print("-----", flush=True)


if __name__ == "__main__":
    main()
