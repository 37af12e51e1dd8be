"""Tests the wheel that pyproject.toml makes of dist/, installed into an environment without the checkout."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import zipfile

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def run(*command, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    packager = run(REPOSITORY / "tools/python_env", "package").strip()
    run(
        packager, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", f"--wheel-dir={directory}",
        REPOSITORY)
    (made,) = directory.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def test_wheel_holds_what_was_built_and_nothing_else(wheel):
    built = {f"cairn/{path.relative_to(REPOSITORY / 'dist/python/cairn')}"
             for path in (REPOSITORY / "dist/python/cairn").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    programs = {"cairn/_bin/cairn", "cairn/_bin/cairn-agent", "cairn/_bin/cairn-gpu-worker",
                "cairn/_bin/cairn-coordinator", "_cairn_programs.py"}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == built | programs
    sources = {f"cairn/{path.relative_to(REPOSITORY / 'python/cairn')}"
               for path in (REPOSITORY / "python/cairn").rglob("*.py")}
    assert sources <= built, "tools/build has not taken them all"


def test_wheel_asks_for_what_the_tests_run_with(metadata):
    """pyproject.toml and tools/requirements say the same."""
    def lines(name):
        text = (REPOSITORY / f"tools/requirements/{name}.txt").read_text()
        return {line for line in text.splitlines() if not line.startswith("#")}

    asked = {
        line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist: ")
    }
    assert lines("run") < asked
    (torch,) = asked - lines("run")
    oldest = re.fullmatch(r"torch>=([0-9.]+); extra == 'torch'", torch)
    assert oldest, "anything but a lower bound could replace a PyTorch that is there"
    (tested,) = (line.removeprefix("torch==") for line in lines("torch"))
    assert numbers(oldest[1]) < numbers(tested)


def numbers(version) -> list[int]:
    return [int(number) for number in version.split(".")]


def test_wheel_has_the_name_that_is_ours_and_one_version(wheel, metadata):
    header = (REPOSITORY / "common/base/version.h").read_text()
    version = re.search(r'kVersion = "(.+)"', header)[1]
    fields = metadata.splitlines()
    assert "Name: cairn-checkpoint" in fields and f"Version: {version}" in fields
    assert wheel.name.startswith(f"cairn_checkpoint-{version}-py3-none-")
    assert "License-Expression: Apache-2.0" in fields


def test_wheel_with_a_planted_tag_is_refused(wheel, tmp_path):
    """A wheel that nobody has repaired needs this system's libraries, whatever its name says."""
    tag = re.search(r"-py3-none-(.+)\.whl$", wheel.name)[1]
    planted = f"manylinux_2_17_{tag.removeprefix('linux_')}"
    path = tmp_path / wheel.name.replace(tag, planted)
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith(".dist-info/WHEEL"):
                content = content.replace(tag.encode(), planted.encode())
            target.writestr(name, content)
    done = subprocess.run([REPOSITORY / "tools/portable/check_wheel", path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "cairn/_bin/cairn needs libgrpc++" in done.stderr and "cairn/_bin/cairn needs GLIBC_2." in done.stderr


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs a script of this folder with an environment that has the wheel and not the checkout."""
    place = tmp_path_factory.mktemp("installed")
    environment = {name: value for name, value in os.environ.items() if name not in ("CAIRN_BIN_DIR", "PYTHONPATH")}
    run(sys.executable, "-m", "venv", "--without-pip", place / "venv")
    python = place / "venv/bin/python"
    run(sys.executable, "-m", "pip", "--quiet", f"--python={python}", "install", "--no-deps", wheel, env=environment)
    # The packages that the wheel depends on come from the tests' environment.
    site = next((place / "venv/lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # One thread of PyTorch is faster than many beside other tests.
    environment |= {"PATH": f"{python.parent}:/usr/bin:/bin", "OMP_NUM_THREADS": "1"}

    def run_script(name, argument) -> str:
        script = place / name  # a copy: the directory of a script is on Python's path
        script.write_bytes((REPOSITORY / "tests/python" / name).read_bytes())
        return run(python, script, argument, cwd=place, env=environment)

    return run_script


def test_installed_wheel_saves_and_loads(installed):
    built = run(REPOSITORY / "dist/bin/cairn", "--version").removeprefix("cairn ").strip()
    assert "The wheel works" in installed("installed_wheel.py", built)


def test_readme_is_true(installed):
    pytest.importorskip("torch")
    assert "The README's program works" in installed("readme_program.py", REPOSITORY / "README.md")
