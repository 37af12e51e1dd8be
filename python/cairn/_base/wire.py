"""The wire contract as Python messages.

They live in a descriptor pool of their own: a process that also uses other packages with `google/rpc/status.proto` (or
another version of Cairn's protos) meets no conflict in protobuf's default pool.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from cairn._base.errors import Error

ERROR_DOMAIN = "cairn.v1"
# The type of messages whose classes protobuf makes when the package is imported.
Message = Any
_ERROR_INFO_URL = "type.googleapis.com/google.rpc.ErrorInfo"


def _make_pool() -> tuple[descriptor_pool.DescriptorPool, list[str]]:
    """Returns the descriptors of all our messages, and the names of their files."""
    try:
        data = importlib.resources.files("cairn").joinpath("_proto/descriptors.binpb").read_bytes()
    except FileNotFoundError as error:
        raise ImportError(
            "cairn._proto/descriptors.binpb is missing: run tools/build and import cairn from dist/python"
        ) from error
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(data).file
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool, [file.name for file in files]


_POOL, _FILES = _make_pool()


def _classes_of(descriptor: Any) -> Iterator[Any]:
    yield message_factory.GetMessageClass(descriptor)
    for nested in descriptor.nested_types:
        yield from _classes_of(nested)


# Keeps the classes of all messages for as long as the process lives. Protobuf makes the class of a field's messages
# when it is first read, and forgets it when nothing refers to it. Another thread that reads such a field while that is
# garbage collected may get an object of a class that is freed under it, and then the process dies.
_CLASSES = [made for file in _FILES for top in _POOL.FindFileByName(file).message_types_by_name.values()
            for made in _classes_of(top)]


def message(name: str) -> Any:
    """Returns the class of a message by its full name."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


def enum_numbers(name: str) -> dict[str, int]:
    return {value.name: value.number for value in _POOL.FindEnumTypeByName(name).values}


def enum_name(name: str, number: int) -> str:
    """Returns the name of a value of an enum, such as "COMMITTED"; "unknown (9)" for a number of a later version."""
    value = _POOL.FindEnumTypeByName(name).values_by_number.get(number)
    return f"unknown ({number})" if value is None else str(value.name)


def enum_text(name: str, number: int) -> str:
    """Returns the word that people read for a value of a file's enum, such as "cached" for IO_PATH_CACHED."""
    value = enum_name(name, number)
    if value.startswith("unknown ("):
        return value
    prefix = re.sub(r"(?<=.)([A-Z])", r"_\1", name.rsplit(".", 1)[-1]).upper() + "_"
    return value.removeprefix(prefix).lower().replace("_", "-")


def transport_text(ended: Message) -> str:
    """Returns how a load's bytes came from other ranks, as in "shared-memory+grpc (nccl: REASON)"."""
    refusal = f" (nccl: {ended.nccl_refusal})" if ended.nccl_refusal else ""
    words = (enum_text("cairn.v1.Transport", number) for number in ended.transports)
    return "+".join(word + refusal if word == "grpc" else word for word in words)


class Method:
    """An RPC of a service: its path and message classes."""

    def __init__(self, descriptor: Any) -> None:
        self.name: str = descriptor.name
        self.path = f"/{descriptor.containing_service.full_name}/{descriptor.name}"
        self.request = message_factory.GetMessageClass(descriptor.input_type)
        self.response = message_factory.GetMessageClass(descriptor.output_type)


def service(name: str) -> dict[str, Method]:
    return {method.name: Method(method) for method in _POOL.FindServiceByName(name).methods}


Layout = message("cairn.v1.Layout")
TensorSchema = message("cairn.v1.TensorSchema")
Status = message("google.rpc.Status")
ErrorInfo = message("google.rpc.ErrorInfo")
PHASES = enum_numbers("cairn.v1.Phase.Value")
DTYPE_NUMBERS = enum_numbers("cairn.v1.DType")
LOCAL_AGENT = service("cairn.v1.LocalAgentService")
CHECKPOINTS = service("cairn.v1.CheckpointService")


def error_from_status(status: Message) -> Error:
    """Returns the Error that a google.rpc.Status carries; without an ErrorInfo of ours its reason is INTERNAL."""
    for detail in status.details:
        if detail.type_url == _ERROR_INFO_URL:
            info = ErrorInfo.FromString(detail.value)
            if info.domain == ERROR_DOMAIN:
                return Error(info.reason, status.message, dict(info.metadata))
    return Error("INTERNAL", status.message or f"status code {status.code} without a reason")


def status_from_error(error: BaseException) -> Message:
    """Makes the google.rpc.Status that tells the agent why this trainer gave something up."""
    reason = (error.reason if isinstance(error, Error) else
              "INTERRUPTED" if isinstance(error, KeyboardInterrupt) else "INTERNAL")
    text = error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    status = Status(code=10, message=text[:512])  # ABORTED
    info = ErrorInfo(reason=reason, domain=ERROR_DOMAIN)
    if isinstance(error, Error):
        for key, value in error.metadata.items():
            info.metadata[key] = str(value)[:256]
    detail = status.details.add()
    detail.type_url = _ERROR_INFO_URL
    detail.value = info.SerializeToString()
    return status


def set_duration(field: Message, seconds: float) -> None:
    """Sets a google.protobuf.Duration field; negative values become zero."""
    nanos = max(0, round(seconds * 1e9))
    field.seconds, field.nanos = divmod(nanos, 1_000_000_000)
