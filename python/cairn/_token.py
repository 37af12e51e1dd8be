"""Finds the token that a coordinator asks for, for this package's own calls to it."""

from __future__ import annotations

import pathlib

from cairn._errors import Error


def metadata(root: pathlib.Path, flags: list[str]) -> tuple[tuple[str, str], ...]:
    """Returns what a call carries to the coordinator of `root` that was started with these flags.

    Raises Error (BAD_TOKEN): there is no such token, or it cannot be read.
    """
    given = _value(flags, "--token-file")
    if given is None and "--insecure" in flags:
        return ()
    path = pathlib.Path(given) if given else root / ".cairn" / "token"
    try:
        token = path.read_text().split("\n", 1)[0].strip()
    except OSError as error:
        raise Error(
            "BAD_TOKEN", f"the token file {path} cannot be read: {error.strerror}", {"file": str(path)}
        ) from None
    return (("authorization", f"Bearer {token}"),)


def _value(flags: list[str], name: str) -> str | None:
    """Returns the value of the last `--name VALUE` or `--name=VALUE`."""
    value = None
    for index, flag in enumerate(flags):
        if flag == name and index + 1 < len(flags):
            value = flags[index + 1]
        elif flag.startswith(name + "="):
            value = flag[len(name) + 1:]
    return value
