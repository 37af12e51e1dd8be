"""What all programs that python_process.cc runs begin with; their text follows this one.

They read frames from standard input and write frames to standard output: one byte for the kind, the length as a
little-endian u32, and the content. A frame of the kind E tells a failure; its content is JSON: reason, message, next.
"""
import sys

sys.path = [place for place in sys.path if place]  # not the directory in which the command is given

import json
import os
import resource
import struct

# What the values of a hostile file may take.
MOST_MEMORY = 2 << 30


class Failure(Exception):
    def __init__(self, reason, message, next):
        super().__init__(message)
        self.content = {"reason": reason, "message": message[:2000], "next": next}


def frame(kind, content=b""):
    return struct.pack("<cI", kind, len(content)) + content


def failure_frame(failure):
    return frame(b"E", json.dumps(failure.content).encode())


def write_all(content, descriptor):
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view):]


def write(content):
    try:
        write_all(content, 1)
    except OSError:
        os._exit(0)  # the other side has ended


def read_exactly(size, descriptor=0):
    """Returns nothing if the input has ended."""
    content = bytearray(size)
    view = memoryview(content)
    while view:
        count = os.readv(descriptor, [view])
        if count == 0:
            return None
        view = view[count:]
    return content


def read_frame(descriptor=0):
    """Returns the kind and the content, or nothing at the end."""
    header = read_exactly(5, descriptor)
    if header is None:
        return None
    kind, length = struct.unpack("<cI", header)
    content = read_exactly(length, descriptor)
    return None if content is None else (kind, content)


def limit_resources():
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # of standard error, which is a file
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def load_arrow(task):
    # This allocator takes no more address space than what it gives out.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    limit_resources()
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Failure("UNSUPPORTED", f"{sys.executable} cannot load pyarrow, which {task}: {error}",
                      f"Install it: {sys.executable} -m pip install pyarrow. Or name a Python that has it by the "
                      "environment variable CAIRN_PYTHON.") from None
    return pyarrow
