"""Where the tests find what they test: the interpreter they run under, binaries in CAIRN_BIN_DIR (default dist/bin)."""

import os
import pathlib
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
os.environ.setdefault("CAIRN_BIN_DIR", str(REPOSITORY / "dist/bin"))
for directory in (REPOSITORY / "tests", REPOSITORY / "dist/python"):
    sys.path.insert(0, str(directory))
