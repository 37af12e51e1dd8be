"""tools/portable/under_qemu.py leaves out tests that exist."""

import pathlib
import re
import runpy

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LEFT_OUT = runpy.run_path(str(REPOSITORY / "tools/portable/under_qemu.py"))


@pytest.mark.parametrize("test", LEFT_OUT["PYTHON"])
def test_a_test_of_python_that_is_left_out_exists(test):
    file, name = test.split("::")
    assert re.search(rf"^def {name}\(", (REPOSITORY / file).read_text(), re.MULTILINE)


def test_tests_of_cpp_that_are_left_out_exist():
    folders = ("common", "corpus", "foreign", "mapping", "planner", "store")
    sources = [path.read_text() for folder in folders for path in (REPOSITORY / folder).rglob("*_test.cc")]
    tests = {f"{suite}.{name}" for text in sources
             for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", text, re.MULTILINE)}
    assert set(LEFT_OUT["CPP"]) <= tests
