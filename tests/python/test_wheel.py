"""Tests the wheel that pyproject.toml makes of dist/, installed into an environment without the checkout."""

import os
import pathlib
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
    assert asked == lines("run") | {f"{line.replace('==', '>=')}; extra == 'torch'" for line in lines("torch")}


def test_installed_wheel_saves_and_loads(wheel, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in ("CAIRN_BIN_DIR", "PYTHONPATH")}
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(sys.executable, "-m", "pip", "--quiet", f"--python={python}", "install", "--no-deps", wheel, env=environment)
    # The packages that the wheel depends on come from the tests' environment.
    site = next((tmp_path / "venv/lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    built = run(REPOSITORY / "dist/bin/cairn", "--version").removeprefix("cairn ").strip()
    script = tmp_path / "installed_wheel.py"  # a copy: the directory of a script is on Python's path
    script.write_bytes((REPOSITORY / "tests/python/installed_wheel.py").read_bytes())
    environment["PATH"] = f"{python.parent}:/usr/bin:/bin"
    assert "The wheel works" in run(python, script, built, cwd=tmp_path, env=environment)
