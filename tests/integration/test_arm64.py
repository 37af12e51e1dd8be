"""Runs a test of whole jobs with the programs, the library and the Python of arm64. tools/test --arm64 runs many."""

import os
import pathlib
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TOOL = REPOSITORY / "tools/portable/arm64"


def version(programs: pathlib.Path) -> str:
    return subprocess.run([programs / "cairn", "--version"], check=True, capture_output=True, text=True).stdout


def test_save_and_load_on_arm64():
    if os.getuid() != 0 or subprocess.run([TOOL, "find"], capture_output=True).returncode != 0:
        pytest.skip("no system of arm64 is here, or no root who may enter it: tools/test --arm64 makes it")
    programs = REPOSITORY / "dist/portable/aarch64"
    if not (programs / "bin/cairn").exists():
        pytest.skip("Cairn is not built for arm64: tools/build --portable=aarch64 does it")
    ran = subprocess.run([TOOL, "run", "cairn", "--version"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    if ran.stdout != version(pathlib.Path(os.environ["CAIRN_BIN_DIR"])):
        pytest.skip("what is built for arm64 is of another commit: tools/build --portable=aarch64 makes it anew")
    test = "tests/integration/test_save_load.py::test_same_layout_several_steps"
    ran = subprocess.run([TOOL, "run", "python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", test],
                         capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout[-4000:] + ran.stderr[-4000:]
