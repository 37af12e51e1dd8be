"""tools/check_includes finds each way in which an include or an import can point wrongly."""

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


def written_includes(tool, tmp_path, sources: dict[str, list[str]]):
    for path, includes in sources.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("".join(f"#include {include}\n" for include in includes))
    return tool.included_by(tmp_path, list(sources))


def faults(tool, tmp_path, sources: dict[str, list[str]]) -> list[str]:
    quoted = {path: [f'"{name}"' for name in names] for path, names in sources.items()}
    return tool.faults(written_includes(tool, tmp_path, quoted))


@pytest.mark.parametrize(("sources", "said"), [
    ({"common/file/a.h": ["common/rpc/b.h"], "common/rpc/b.h": []}, "common/file may not include common/rpc/b.h"),
    ({"coordinator/save/a.cc": ["coordinator/load/b.h"], "coordinator/load/b.h": []}, "does not stand below it"),
    ({"agent/writer/a.cc": ["coordinator/save/b.h"], "coordinator/save/b.h": []}, "nothing of coordinator/save is for"),
    ({"agent/session/a.cc": ["planner/save/b.h"], "planner/save/b.h": []}, "nothing of planner/save is for it"),
    ({"coordinator/save/a.cc": ["planner/save/b.h"], "planner/save/b.h": []}, "nothing of planner/save is for it"),
    ({"cli/commands/a.cc": ["coordinator/server/b.h"], "coordinator/server/b.h": []}, "nothing of coordinator/server"),
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
        "coordinator/server/e.cc": ["planner/save/f.h"],
        "planner/save/f.h": ["mapping/g.h"],
        "mapping/g.h": [],
    }) == []


PURE = "coordinator/save is pure and may include no "


@pytest.mark.parametrize(("sources", "said"), [
    ({"coordinator/save/a.cc": ["<thread>"]}, f"coordinator/save/a.cc:1: {PURE}thread: thread"),
    ({"coordinator/save/a.h": ['"common/base/clock.h"']}, f"{PURE}clock: common/base/clock.h"),
    ({"coordinator/save/a.cc": ['"x/b.h"'], "x/b.h": ['"x/c.h"'], "x/c.h": ["<vector>", "<poll.h>"]},
     f"{PURE}descriptor: x/b.h -> x/c.h -> poll.h"),
    ({"coordinator/save/a.cc": ['"x/a.h"'], "x/a.h": ['"x/b.h"'], "x/b.h": ['"x/a.h"', "<grpcpp/grpcpp.h>"]},
     f"{PURE}gRPC: x/a.h -> x/b.h -> grpcpp/grpcpp.h"),
    ({"agent/session/a.cc": ["<fstream>"]}, "agent/session is pure and may include no file: fstream"),
])
def test_pure_room_that_is_not_pure_is_named(tool, tmp_path, sources, said):
    found = tool.purity_faults(written_includes(tool, tmp_path, sources))
    assert len(found) == 1 and said in found[0], found


def test_what_is_pure_is_right(tool, tmp_path):
    assert tool.purity_faults(written_includes(tool, tmp_path, {
        "coordinator/save/a.cc": ['"coordinator/save/a.h"', '"absl/time/time.h"', "<mutex>"],
        "coordinator/save/a.h": ["<vector>"],
        "coordinator/save/a_test.cc": ["<thread>"],
        "coordinator/save/testing/b.cc": ["<fstream>"],
        "coordinator/server/c.cc": ["<thread>", '"coordinator/save/a.h"'],
    })) == []


def test_header_of_common_for_one_room_is_named(tool, tmp_path):
    includes = written_includes(tool, tmp_path, {
        "common/base/mine.h": [], "common/base/mine.cc": ['"common/base/mine.h"'],
        "common/base/two.h": [], "common/base/inner.h": [], "common/base/inner_user.cc": ['"common/base/inner.h"'],
        "agent/writer/a.cc": ['"common/base/mine.h"', '"common/base/two.h"', '"common/base/inner.h"'],
        "agent/writer/a_test.cc": ['"common/base/mine.h"'],
        "agent/reader/b.cc": ['"common/base/two.h"'],
    })
    assert tool.one_user_faults(includes) == ["common/base/mine.h: only agent/writer includes it, so it belongs there"]


def python_faults(tool, tmp_path, sources: dict[str, str]) -> list[str]:
    for path, text in sources.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tool.python_faults(tmp_path, list(sources))


@pytest.mark.parametrize(("sources", "said"), [
    ({"python/cairn/_a.py": "from cairn import _b", "python/cairn/_b.py": "def f():\n    from cairn._a import x"},
     "these import each other: cairn._a -> cairn._b -> cairn._a"),
    ({"python/cairn/_a.py": "import cairn.torch._b", "python/cairn/torch/_b.py": ""},
     "python/cairn/_a.py:1: cairn may not import cairn.torch._b"),
    ({"python/cairn/torch/_a.py": "\nfrom cairn.lightning import x", "python/cairn/lightning.py": ""},
     "python/cairn/torch/_a.py:2: cairn.torch may not import cairn.lightning"),
    ({"python/cairn/huggingface.py": "from cairn import lightning", "python/cairn/lightning.py": ""},
     "cairn.huggingface may not import cairn.lightning"),
    ({"python/cairn/_base/a.py": "\nfrom cairn._save.b import x", "python/cairn/_save/b.py": ""},
     "python/cairn/_base/a.py:2: cairn._base may not import cairn._save.b"),
    ({"python/cairn/_save/a.py": "from cairn._load import b", "python/cairn/_load/b.py": ""},
     "cairn._save may not import cairn._load.b"),
    ({"python/cairn/_nowhere/a.py": ""}, "python/cairn/_nowhere/a.py: its package cairn._nowhere stands in no place"),
])
def test_fault_of_an_import_is_named(tool, tmp_path, sources, said):
    found = python_faults(tool, tmp_path, sources)
    assert len(found) == 1 and said in found[0], found


def test_imports_that_point_down_are_right(tool, tmp_path):
    assert python_faults(tool, tmp_path, {
        "python/cairn/__init__.py": "from cairn import client",
        "python/cairn/client.py": "import os\nfrom cairn._a import x",
        "python/cairn/_a.py": "from __future__ import annotations\nimport torch",
        "python/cairn/torch/__init__.py": "from cairn.torch._b import y",
        "python/cairn/torch/_b.py": "from cairn.client import Client",
        "python/cairn/lightning.py": "from cairn.torch import _b",
    }) == []


def test_this_house_is_right():
    done = subprocess.run([ROOT / "tools" / "check_includes"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
