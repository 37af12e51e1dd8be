"""Tests that tools/portable/check_wheel refuses a wheel that needs more than its tag says."""

import pathlib
import platform
import random
import subprocess
import zipfile

import pytest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools/portable/check_wheel"
MACHINE = platform.machine()
OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}[MACHINE]


def compiled(directory: pathlib.Path, compiler: str, *options: str) -> bytes:
    """Returns a program of this system, whose C library is newer than 2.28."""
    out = directory / "program"
    subprocess.run([compiler, "-x", "c++", "-", "-o", out, *options], check=True, input=b"int main() { return 0; }")
    return out.read_bytes()


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> bytes:
    return compiled(tmp_path_factory.mktemp("program"), "gcc")


def wheel(directory, content: bytes, tag: str, inner: str = "", carries: bytes = b"") -> pathlib.Path:
    path = directory / f"cairn_checkpoint-1.0-py3-none-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cairn/_bin/cairn", content)
        if carries:
            archive.writestr("cairn_checkpoint.libs/libcarried.so.1", carries)
        archive.writestr("cairn_checkpoint-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: py3-none-{inner or tag}\n")
    return path


def refusal(path: pathlib.Path) -> str:
    done = subprocess.run([CHECK, path], capture_output=True, text=True)
    assert done.returncode == 1 and not done.stdout, done
    return done.stderr


def test_tag_of_a_new_enough_c_library_is_accepted(tmp_path, program):
    path = wheel(tmp_path, program, f"manylinux_2_99_{MACHINE}")
    done = subprocess.run([CHECK, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 programs and libraries need glibc 2." in done.stdout


def test_tag_of_an_older_c_library_is_refused(tmp_path, program):
    # main() of this system's C library is started by a function that is newer than the tag.
    assert "cairn/_bin/cairn needs GLIBC_2." in refusal(wheel(tmp_path, program, f"manylinux_2_28_{MACHINE}"))


def test_another_processor_is_refused(tmp_path, program):
    said = refusal(wheel(tmp_path, program, f"manylinux_2_99_{OTHER}"))
    assert f"cairn/_bin/cairn is not for {OTHER}" in said


def test_tag_that_differs_from_the_name_is_refused(tmp_path, program):
    path = wheel(tmp_path, program, f"manylinux_2_99_{MACHINE}", inner=f"linux_{MACHINE}")
    assert f"['py3-none-linux_{MACHINE}']" in refusal(path)


def test_name_without_a_tag_is_refused(tmp_path, program):
    assert "its name has no tag" in refusal(wheel(tmp_path, program, f"linux_{MACHINE}"))


def test_library_that_is_not_of_the_c_library_is_refused(tmp_path):
    content = compiled(tmp_path, "g++", "-Wl,--no-as-needed")
    assert "needs libstdc++.so.6" in refusal(wheel(tmp_path, content, f"manylinux_2_99_{MACHINE}"))


def test_path_to_look_for_libraries_is_refused(tmp_path):
    content = compiled(tmp_path, "gcc", "-Wl,-rpath,$ORIGIN")
    assert "has a path to look for libraries" in refusal(wheel(tmp_path, content, f"manylinux_2_99_{MACHINE}"))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> tuple[bytes, bytes]:
    """Returns a library, and a program that finds it in the wheel and needs the C++ library, too."""
    directory = tmp_path_factory.mktemp("libraries")
    library = directory / "libcarried.so.1"
    subprocess.run(["gcc", "-x", "c", "-", "-shared", "-o", library, "-Wl,-soname,libcarried.so.1"], check=True,
                   input=b"int carried;")
    program = compiled(directory, "g++", "-Wl,--no-as-needed", "-x", "none", str(library),
                       "-Wl,-rpath,$ORIGIN/../../cairn_checkpoint.libs")
    return library.read_bytes(), program


def test_libraries_that_the_wheel_carries_are_accepted(tmp_path, libraries):
    carried, program = libraries
    path = wheel(tmp_path, program, f"manylinux_2_99_{MACHINE}", carries=carried)
    done = subprocess.run([CHECK, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = refusal(wheel(tmp_path, program, f"manylinux_2_99_{MACHINE}"))
    assert "needs libcarried.so.1" in said and "has a path" in said, "it does not carry the library"


def test_wheel_that_carries_libraries_with_an_older_tag_is_refused(tmp_path, libraries):
    carried, program = libraries
    said = refusal(wheel(tmp_path, program, f"manylinux_2_28_{MACHINE}", carries=carried))
    assert "cairn/_bin/cairn needs GLIBC_2." in said and "needs libstdc++.so.6" in said


def test_path_out_of_the_wheel_is_refused_though_it_carries_libraries(tmp_path, libraries):
    content = compiled(tmp_path, "gcc", "-Wl,-rpath,/opt/lib")
    path = wheel(tmp_path, content, f"manylinux_2_99_{MACHINE}", carries=libraries[0])
    assert "has a path to look for libraries: /opt/lib" in refusal(path)


def test_wheel_of_more_than_40_mb_is_refused(tmp_path, program):
    content = program + random.Random(1).randbytes(40 * 10**6)
    assert "and 40000000 are allowed" in refusal(wheel(tmp_path, content, f"manylinux_2_99_{MACHINE}"))


def test_wheel_without_programs_is_refused(tmp_path):
    assert "it holds no program" in refusal(wheel(tmp_path, b"#!/bin/sh\n", f"manylinux_2_99_{MACHINE}"))
