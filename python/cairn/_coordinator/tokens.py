"""Finds the tokens by which a coordinator and this package prove themselves to each other."""

from __future__ import annotations

import os
import pathlib
import re
import stat

from cairn._base.errors import Error


def of_root(root: pathlib.Path | str, flags: list[str], address: str = "") -> list[str]:
    """Returns the tokens of the coordinator of `root` that was started with these flags; none with --insecure.

    A root in an object store is a string, and `address` is where its coordinator serves.

    Raises Error (BAD_TOKEN): there is no such token, or it cannot be read.
    """
    given = _value(flags, "--token-file")
    if given is None and "--insecure" in flags:
        return []
    if given is None and isinstance(root, str):
        return of_coordinator(address, None)  # the token of an object store is read by the coordinator alone
    return _lines(pathlib.Path(given) if given else pathlib.Path(root) / ".cairn" / "token")


def of_coordinator(address: str, token_file: str | os.PathLike[str] | None) -> list[str]:
    """Returns the tokens by one of which a coordinator may prove itself.

    Without a file, CAIRN_TOKEN_FILE and CAIRN_INSECURE decide, else the copies that coordinators of this machine leave
    for their user (docs/protocol.md, "Security").

    Raises Error (BAD_TOKEN): the file cannot be read.
    """
    given = os.fspath(token_file) if token_file is not None else os.environ.get("CAIRN_TOKEN_FILE")
    if given:
        return _lines(pathlib.Path(given))
    if os.environ.get("CAIRN_INSECURE", "").lower() in ("1", "true", "on", "yes"):
        return []
    user = os.geteuid()
    bases = dict.fromkeys([os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}", "/tmp"])
    name = re.sub(r"[^A-Za-z0-9.-]", "_", address)[:200]
    found = []
    for base in bases:
        directory = pathlib.Path(base, f"cairn-{user}", "tokens")
        if base.startswith("/") and _own(directory.parent) and _own(directory) and (directory / name).is_file():
            found += _lines(directory / name)[:1]  # the second line is the copy's owner
    return found


def _own(directory: pathlib.Path) -> bool:
    """Says whether only this user may write to the directory, so that nobody else has planted a token there."""
    try:
        info = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022


def _lines(path: pathlib.Path) -> list[str]:
    """Returns the tokens of a file, one a line."""
    try:
        text = path.read_text()
    except OSError as error:
        raise Error(
            "BAD_TOKEN", f"the token file {path} cannot be read: {error.strerror}",
            {"file": str(path), "next": f"Give the path of a file that this process (user {os.geteuid()}) can read: of "
             "mode 0400 or 0600 with this user as its owner, or 0440 with a group of this process."}
        ) from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _value(flags: list[str], name: str) -> str | None:
    """Returns the value of the last `--name VALUE` or `--name=VALUE`."""
    value = None
    for index, flag in enumerate(flags):
        if flag == name and index + 1 < len(flags):
            value = flags[index + 1]
        elif flag.startswith(name + "="):
            value = flag[len(name) + 1:]
    return value
