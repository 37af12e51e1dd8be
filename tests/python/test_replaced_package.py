"""Tests that the command of the wheel notices another distribution in the place of the package or of itself."""

import os
import pathlib
import subprocess
import sys

import pytest

PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "python"
ASKS = "import sys; sys.argv = [sys.argv[1]]; import _cairn_programs; print(_cairn_programs._replaced())"


class Place:
    """A directory of installed distributions, and one of commands."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.install("cairn-checkpoint", "0.1.0", {"cairn/__init__.py": "ours = 1\n", "cairn/client.py": "\n"})
        self.commands = path / "bin"
        self.commands.mkdir()
        self.own = self.command(self.commands)

    def install(self, name: str, version: str, files: dict[str, str]) -> None:
        information = self.path / f"{name.replace('-', '_')}-{version}.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (information / "top_level.txt").write_text("cairn\n")
        (information / "RECORD").write_text("".join(f"{file},,{len(text)}\n" for file, text in files.items()))
        for file, text in files.items():
            (self.path / file).parent.mkdir(exist_ok=True)
            (self.path / file).write_text(text)

    def command(self, directory: pathlib.Path) -> pathlib.Path:
        (directory / "cairn").write_text("#!/bin/sh\n")
        (directory / "cairn").chmod(0o755)
        return directory / "cairn"

    def replaced(self, *path: pathlib.Path) -> str:
        environment = {**os.environ, "PYTHONPATH": f"{self.path}:{PROGRAMS}",
                       "PATH": ":".join(map(str, [*path, self.commands]))}
        return subprocess.run([sys.executable, "-c", ASKS, self.own], env=environment, check=True, capture_output=True,
                              text=True).stdout.strip()


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "site")


def test_nothing_is_said_of_a_whole_installation(place):
    assert place.replaced() == ""


def test_another_distribution_of_the_name_is_named(place):
    place.install("cairn", "3.2", {"cairn/__init__.py": "theirs = 12345\n", "cairn/cli.py": "\n"})
    assert place.replaced() == ("the distribution cairn is installed too, which has a package of the same name; "
                                "1 of 2 files of the package are missing or another's, such as cairn/__init__.py")


def test_files_that_another_one_took_away_are_missed(place):
    (place.path / "cairn/client.py").unlink()
    assert place.replaced() == "1 of 2 files of the package are missing or another's, such as cairn/client.py"


def test_another_command_that_path_finds_first_is_named(place, tmp_path):
    other = place.command(tmp_path)
    assert place.replaced(tmp_path) == f"PATH finds {other} and not {place.own}"


@pytest.mark.parametrize("files", [
    {"broken-1.0.dist-info/top_level.txt": "cairn\n"},
    {"broken-1.0.dist-info/METADATA": "Name: caf\xe9\n", "broken-1.0.dist-info/top_level.txt": "cairn\n"},
    {"cairn_checkpoint-0.1.0.dist-info/RECORD": ",,\ncairn/__init__.py,,many\n"},
])
def test_a_broken_distribution_stops_nothing(place, tmp_path, files):
    place.install("cairn", "3.2", {"cairn/cli.py": "\n"})
    other = place.command(tmp_path)
    for name, text in files.items():
        (place.path / name).parent.mkdir(exist_ok=True)
        (place.path / name).write_text(text, encoding="latin-1")
    assert place.replaced(tmp_path).endswith(f"PATH finds {other} and not {place.own}")
