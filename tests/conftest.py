"""Finds what the tests test: the interpreter they run under, and binaries in CAIRN_BIN_DIR (default dist/bin)."""

import atexit
import contextlib
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
os.environ.setdefault("CAIRN_BIN_DIR", str(REPOSITORY / "dist/bin"))
for directory in (REPOSITORY / "tests", REPOSITORY / "dist/python"):
    sys.path.insert(0, str(directory))

# Each process of pytest-xdist imports all test files, and compiling them takes seconds. So what is compiled is kept
# (git ignores it). Processes that tests start keep nothing if PYTHONDONTWRITEBYTECODE says so, as in tools/test.
sys.dont_write_bytecode = False

# The services under test must not see what the user has set, nor leave anything among the user's files.
for name in ("CAIRN_COORDINATOR", "CAIRN_AGENT", "CAIRN_TOKEN_FILE", "CAIRN_INSECURE", "CAIRN_MIRROR"):
    os.environ.pop(name, None)
os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="cairn-run-")
atexit.register(shutil.rmtree, os.environ["XDG_RUNTIME_DIR"], ignore_errors=True)


# Folders whose tests start no processes, or only short ones.
UNIT_TESTS = ("tests/python", "tests/mapping", "tests/planner")


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="of the files that start services, only the first test")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--quick"):
        return
    kept, dropped, begun = [], [], set()
    for item in items:
        path = item.path.relative_to(REPOSITORY).as_posix()
        unit = path.startswith(UNIT_TESTS)
        wanted = item.get_closest_marker("interop") is None and (unit or path not in begun)
        (kept if wanted else dropped).append(item)
        if wanted:
            begun.add(path)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


def pytest_configure(config):
    config.addinivalue_line("markers", "interop: compares with another library (tools/test --interop)")
    config.addinivalue_line("markers", "limits: cairn.Limits of the fixture `client`, as keywords")
    config.addinivalue_line("markers", "browser: looks at the web page in a real browser (tools/test --browser)")


@pytest.fixture
def root(tmp_path):
    """A root for checkpoints that is not there yet."""
    return tmp_path / "checkpoints"


@pytest.fixture
def probe():
    """Lets functions watch points of the clients of this process, until the test ends: probe(POINT, FUNCTION)."""
    from cairn._base import probes

    with contextlib.ExitStack() as watching:
        yield lambda point, function: watching.enter_context(probes.at(point, function))


@pytest.fixture
def controls(tmp_path, monkeypatch):
    """Sets the stand-in for NCCL in the agents that start from now on. All ranks are on one device."""
    path = tmp_path / "controls"
    monkeypatch.setenv("STAND_IN_NCCL", str(path))

    def write(*settings):
        path.write_text("\n".join(("shared_device 1", *settings)) + "\n")

    write()
    return write
