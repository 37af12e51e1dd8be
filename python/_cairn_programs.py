"""The commands `cairn`, `cairn-agent` and `cairn-coordinator` of the wheel: each becomes the program in cairn/_bin.

This module stands outside of the package, because `import cairn` takes half a second of a core.
"""

import os
import pathlib
import sys


def _become(name: str) -> None:
    program = str(pathlib.Path(__file__).resolve().parent / "cairn" / "_bin" / name)
    # Tables are read by the Python that has this package, which is the one to install pyarrow for.
    os.environ.setdefault("CAIRN_PYTHON", sys.executable)
    # exec keeps the process, so signals, exit status and process id are the program's own.
    os.execv(program, [program, *sys.argv[1:]])


def _packages() -> str:
    """Returns the versions of Python and of what Cairn uses, without importing any of it."""
    import importlib.metadata
    import platform

    found = [platform.python_version()]
    for name in ("cairn-checkpoint", "torch", "numpy", "grpcio", "protobuf"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def cairn() -> None:
    if "doctor" in sys.argv[1:]:
        os.environ["CAIRN_PYTHON"] = _packages()
    _become("cairn")


def cairn_agent() -> None:
    _become("cairn-agent")


def cairn_coordinator() -> None:
    _become("cairn-coordinator")
