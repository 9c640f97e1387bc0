"""The type of the messages: from a descriptor set, or a .proto file that is compiled here."""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from ingest.errors import SpecError

LIMIT_SECONDS = 60
_DO = "Give a .proto file, or a descriptor set (`protoc --include_imports --descriptor_set_out`), beside the spec; nothing was read."
_INSTALL = "Install windrow[protobuf]."


def descriptor_set(path: Path) -> bytes:
    """The file's types and those that it imports, as the bytes of a descriptor set.

    Raises:
        SpecError: the file can't be read or compiled.
    """
    try:
        octets = path.read_bytes()
        if path.suffix != ".proto":
            return octets
        digest = hashlib.sha256()
        for other in sorted(path.parent.rglob("*.proto")):  # whatever it may import
            digest.update(repr((str(other), hashlib.sha256(other.read_bytes()).hexdigest())).encode())
    except OSError as error:
        raise SpecError(f"The Protobuf file {path} can't be read: {error.strerror}", "spec", _DO) from error
    return _compiled(path.resolve(), digest.hexdigest())


@lru_cache(maxsize=16)
def _compiled(path: Path, _digest: str) -> bytes:
    """By the compiler of the package grpcio-tools, in a process of its own: it ends the process where it fails."""
    if importlib.util.find_spec("grpc_tools") is None:
        raise SpecError(f"{path.name} can't be compiled: the package grpcio-tools isn't installed", "spec", _INSTALL)
    known = importlib.resources.files("grpc_tools") / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        places = ["-I", str(path.parent), "-I", str(known)]
        command = [sys.executable, "-m", "grpc_tools.protoc", *places, "--include_imports", f"--descriptor_set_out={out}", path.name]
        done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        if done.returncode:
            lines = done.stderr.splitlines()  # the compiler's own log among them
            said = [line for line in lines if ".proto:" in line] or lines[-1:]
            raise SpecError(f"The Protobuf file {path} can't be compiled: {'; '.join(said)}", "spec", _DO)
        return out.read_bytes()


def message_type(octets: bytes, name: str, place: str) -> Any:
    """The descriptor of a message's type. `place`: where it comes from, for people.

    Raises:
        SpecError: the bytes are no descriptor set, it isn't whole, or has no such type.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: PLC0415  # an extra, loaded where it is asked for
        from google.protobuf.message import DecodeError  # noqa: PLC0415  # as above
    except ModuleNotFoundError as missing:
        raise SpecError("Protobuf's own library isn't installed", "spec", _INSTALL) from missing
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(octets).file:
            pool.Add(file)
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise SpecError(f"There is no message type {name} in {place}", "spec", "Name it with its package: shop.Order.") from None
    except (DecodeError, TypeError) as error:
        raise SpecError(f"{place} can't be used: {type(error).__name__}: {error}", "spec", _DO) from None
