"""Checks what an installed wheel must do without the checkout. test_wheel.py and tools/package --test run it.

    usage: python installed_wheel.py VERSION-TEXT      e.g. "0.1.0 (commit 0123456789ab)"

The programs must be on PATH. Checkpoints go to a directory of their own below the working directory.
"""

import importlib.metadata
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

import numpy

import cairn


def save_and_load(addresses: list[str]) -> None:
    """Runs all ranks as threads: each saves its rows of a matrix and loads all of it."""
    whole = numpy.arange(len(addresses) * 6, dtype=numpy.float32).reshape(-1, 3)
    loaded = [numpy.zeros_like(whole) for _ in addresses]
    failures = []

    def rank(number: int) -> None:
        try:
            with cairn.connect(addresses[number]) as client:
                rows = cairn.Shard(whole[2 * number:2 * number + 2].copy(), whole.shape, (2 * number, 0))
                assert client.save(7, {"w": rows, "config": {"lr": 0.1}}).wait().step == 7
                report = client.load({"w": cairn.Shard(loaded[number], whole.shape, (0, 0))})
                assert report.objects["config"] == {"lr": 0.1}
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(addresses))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    assert all((array == whole).all() for array in loaded)


def main() -> None:
    version_text = sys.argv[1]
    place = pathlib.Path(cairn.__file__).resolve().parent
    assert place.is_relative_to(sys.prefix), f"cairn comes from {place}, not from below {sys.prefix}"
    assert (place / "py.typed").exists()
    assert cairn.__version__ == importlib.metadata.version("cairn-checkpoint") == version_text.split()[0]
    for program in ("cairn", "cairn-coordinator", "cairn-agent"):
        found = shutil.which(program)
        assert found and pathlib.Path(found).is_relative_to(sys.prefix), f"{program} on PATH is {found}"
        printed = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
        assert printed == f"{program} {version_text}\n", printed

    found = json.loads(subprocess.run(["cairn", "doctor", "--format=json"], capture_output=True, text=True).stdout)
    (python,) = (finding["text"] for finding in found["findings"] if finding["check"] == "Python")
    assert python.startswith(f"{sys.version.split()[0]}, cairn-checkpoint {cairn.__version__}, "), python
    assert f"numpy {numpy.__version__}" in python, python
    assert "installation" not in {finding["check"] for finding in found["findings"]}, found

    directory = pathlib.Path(tempfile.mkdtemp(prefix="checkpoints-", dir="."))
    path, os.environ["PATH"] = os.environ["PATH"], "/usr/bin:/bin"  # the package finds its own programs
    with cairn.local.Cluster(1, directory / "cluster") as cluster:
        save_and_load([agent.address for agent in cluster.agents])
    os.environ["PATH"] = path

    up = subprocess.Popen(["cairn", "--format=json", "up", "--ranks=2", f"--root={directory / 'up'}"],
                          stdout=subprocess.PIPE, text=True)
    try:
        text = ""
        while not text.endswith("\n}\n"):
            line = up.stdout.readline()
            assert line, f"`cairn up` ended with status {up.wait()} after {text!r}"
            text += line
        started = json.loads(text)
        save_and_load(started["agents"])
        listed = subprocess.run(["cairn", "--format=json", "list", "demo"], check=True, capture_output=True, text=True,
                                env={**os.environ, "CAIRN_COORDINATOR": started["coordinator"]}).stdout
        assert json.loads(listed)["checkpoints"][0]["step"] == 7, listed
    finally:
        up.send_signal(signal.SIGINT)
        status = up.wait(60)
    assert status == 0, f"`cairn up` ended with status {status}"
    print("The wheel works: Python", sys.version.split()[0], "cairn", version_text)


if __name__ == "__main__":
    main()
