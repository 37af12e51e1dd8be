"""tools/check_includes finds each way in which an include can point wrongly."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    loader = importlib.machinery.SourceFileLoader("check_includes", str(ROOT / "tools" / "check_includes"))
    spec = importlib.util.spec_from_loader("check_includes", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def faults(tool, tmp_path, sources: dict[str, list[str]]) -> list[str]:
    for path, includes in sources.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("".join(f'#include "{include}"\n' for include in includes))
    return tool.faults(tmp_path, list(sources))


@pytest.mark.parametrize(("sources", "said"), [
    ({"common/file/a.h": ["common/rpc/b.h"], "common/rpc/b.h": []}, "common/file may not include common/rpc/b.h"),
    ({"coordinator/save/a.cc": ["coordinator/load/b.h"], "coordinator/load/b.h": []}, "does not stand below it"),
    ({"agent/writer/a.cc": ["coordinator/save/b.h"], "coordinator/save/b.h": []}, "never include each other"),
    ({"planner/save/a.h": ["planner/save/b.h"], "planner/save/b.cc": ["planner/save/c.h"], "planner/save/b.h": [],
      "planner/save/c.h": ["planner/save/a.h"]}, "these include each other: planner/save/a -> planner/save/b"),
    ({"somewhere/a.h": []}, "its folder somewhere stands in no place"),
    ({"cli/a.cc": ["agent/testing/b.h"], "agent/testing/b.h": []}, "for tests only"),
])
def test_fault_is_named(tool, tmp_path, sources, said):
    found = faults(tool, tmp_path, sources)
    assert len(found) == 1 and said in found[0], found


def test_what_points_down_is_right(tool, tmp_path):
    assert faults(tool, tmp_path, {
        "coordinator/save/a.h": ["coordinator/save/a_impl.h", "coordinator/decision/b.h", "absl/status/status.h"],
        "coordinator/save/a_impl.h": ["coordinator/save/a.h"],
        "coordinator/decision/b.h": [],
        "coordinator/save/a_test.cc": ["agent/testing/c.h", "coordinator/load/d.h"],
        "agent/testing/c.h": [],
        "coordinator/load/d.h": [],
    }) == []


def test_this_house_is_right():
    done = subprocess.run([ROOT / "tools" / "check_includes"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
