"""Writes safetensors files by the format's definition, right ones and wrong ones."""

import json
import pathlib
import struct


def write(path, tensors, metadata=None):
    """Writes a file by the format's definition: name -> array."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    names = {"bool": "BOOL", "uint8": "U8", "int16": "I16", "float16": "F16", "int32": "I32", "float32": "F32",
             "uint64": "U64", "float64": "F64", "complex64": "C64"}
    for name, array in tensors.items():
        header[name] = {"dtype": names[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    return write_raw(path, json.dumps(header).encode(), data)


def write_raw(path, header, data=b""):
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path
