"""Finds flags in the errors of `cairn corpus` that the command which failed has not."""
import functools
import re
import subprocess

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")


@functools.cache
def flags_of(program, command):
    done = subprocess.run([program, *command, "--help"], capture_output=True, text=True, timeout=60, check=True)
    return frozenset(FLAG.findall(done.stdout))


def check(arguments, stderr):
    words = [str(word) for word in arguments] if isinstance(arguments, (list, tuple)) else []
    if "corpus" not in words or not words[0].endswith("/cairn"):
        return
    text = stderr if isinstance(stderr, str) else (stderr or b"").decode(errors="replace")
    begin = max(text.rfind("error: "), text.rfind('{\n  "error"'))
    if begin < 0:
        return
    at = words.index("corpus")
    command = tuple(words[at:at + (3 if words[at + 1] == "bpe" else 2)])
    said = re.sub(r"`(?!cairn corpus)[^`]*`", "", text[begin:])  # the flags of other programs
    given = {word.partition("=")[0] for word in words}  # perhaps wrong, which the error tells
    strange = set(FLAG.findall(said)) - flags_of(words[0], command) - given
    assert not strange, f"{' '.join(command)} has no {', '.join(sorted(strange))}: {text[begin:]}"
