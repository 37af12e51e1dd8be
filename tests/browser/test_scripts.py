"""Runs the tests of the page's functions, which stand beside them (cli/web/*_test.mjs), in node."""

import pathlib
import shutil
import subprocess

import pytest

WEB = pathlib.Path(__file__).resolve().parents[2] / "cli/web"
TESTS = sorted(path.name for path in WEB.glob("*_test.mjs"))

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="not run: no node (tools/test --browser)")


@pytest.mark.parametrize("name", TESTS)
def test_functions_of_the_page(name):
    ran = subprocess.run(["node", "--test", "--test-reporter=tap", name], cwd=WEB, capture_output=True, text=True,
                         timeout=120)
    assert ran.returncode == 0, ran.stdout
    assert "# pass 0" not in ran.stdout, "it has tests"


def test_each_module_has_a_test_or_is_drawn_by_the_page():
    """What needs a browser is looked at in one (test_page.py); views are tested as parts of the whole page."""
    tested = {name.removesuffix("_test.mjs") for name in TESTS}
    modules = {path.stem for path in WEB.glob("*.mjs")} - {name.removesuffix(".mjs") for name in TESTS}
    drawn = {"app", "drawing", "table", "timeline"} | {name for name in modules if name.endswith("_view")}
    assert modules - drawn <= tested
