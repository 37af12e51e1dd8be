"""Runs the README's program and its two commands as they are printed there, and checks what the README says of them.

    usage: python readme_program.py README.md      with cairn's programs and `python` on PATH, and PyTorch

train.py and the checkpoints go to the working directory. test_wheel.py and tools/package --test run it.
"""

import pathlib
import re
import signal
import subprocess
import sys


def start(command: str) -> subprocess.Popen:
    return subprocess.Popen(f"exec {command}", shell=True, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


def output(command: str) -> str:
    process = start(command)
    printed = process.communicate(timeout=300)[0]
    assert process.returncode == 0, f"{command} ended with status {process.returncode} after {printed!r}"
    return printed


def main() -> None:
    text = pathlib.Path(sys.argv[1]).read_text()
    program, commands = re.search(r"`train\.py`:\n\n```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL).groups()
    pathlib.Path("train.py").write_text(program)
    # Other programs of this machine may use /tmp/checkpoints.
    run, listing = (line[2:] for line in commands.replace("/tmp/checkpoints", "checkpoints").splitlines())

    # "Stop it with SIGTERM and start it again: it saves, and resumes."
    process = start(run)
    for line in process.stdout:
        if line.startswith("resumes after step"):
            break
    assert line == "resumes after step None\n", line
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    kept = [int(step) for step in re.findall(r"^ *(\d+) ", output(listing), re.MULTILINE)]
    assert kept, "it was stopped and has saved nothing"
    assert f"resumes after step {max(kept)}\n" in output(run)
    print("The README's program works.\n" + output(listing))


if __name__ == "__main__":
    main()
