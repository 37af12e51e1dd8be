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


def _replaced() -> str:
    """Returns what stands in the place of the package or of the command `cairn`; "" if nothing does."""
    import contextlib
    import importlib.metadata
    import shutil

    own = "cairn-checkpoint"
    said = []
    # A distribution that is half removed, or was not made by pip, can make any of these calls fail in any way. What it
    # hides is not looked at.
    with contextlib.suppress(Exception):
        for other in sorted(set(importlib.metadata.packages_distributions().get("cairn", ())) - {own, None}):
            said.append(f"the distribution {other} is installed too, which has a package of the same name")
    files, wrong = [], []
    with contextlib.suppress(Exception):
        installed = importlib.metadata.files(own) or ()
        files = [each for each in installed if each.parts[:1] == ("cairn",) and each.size is not None]
        wrong = [each for each in files if not each.locate().exists() or each.locate().stat().st_size != each.size]
    if wrong:
        said.append(f"{len(wrong)} of {len(files)} files of the package are missing or another's, such as {wrong[0]}")
    found = shutil.which("cairn")
    if found and os.path.exists(sys.argv[0]) and not os.path.samefile(found, sys.argv[0]):
        said.append(f"PATH finds {found} and not {sys.argv[0]}")
    return "; ".join(said)


def cairn() -> None:
    if "doctor" in sys.argv[1:]:
        os.environ["CAIRN_PYTHON"] = _packages()
        replaced = _replaced()
        if replaced:
            os.environ["CAIRN_REPLACED"] = replaced
    _become("cairn")


def cairn_agent() -> None:
    _become("cairn-agent")


def cairn_coordinator() -> None:
    _become("cairn-coordinator")
