"""The type of the messages: from a descriptor set, or a .proto file that is compiled here."""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.formats.protobuf.known import CONFLUENT

LIMIT_SECONDS = 60
_MAIN = "windrow-schema.proto"
_MESSAGES, _NESTED, _FIELDS = 4, 3, 2
"""The numbers of the fields in which a file has its messages, a message its own ones,
and its fields: a comment's place is made of them.
"""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,200}")
_DO = (
    "Give a .proto file, or a descriptor set (`protoc --include_imports --descriptor_set_out`),"
    " beside the spec; nothing was read."
)
_INSTALL = "Install windrow[protobuf]."


@dataclass(frozen=True)
class TypesFile:
    """A descriptor set or a .proto file of a spec, by its `name` relative to `folder`.

    Pickled, it is its types: a worker may be on a machine that has no such file.
    """

    folder: Path
    name: str
    taken: bytes | None = field(default=None, compare=False, repr=False)
    """The types, as they were taken along; None: they are read when they are asked for."""

    digest: str = ""
    """Of the types, in what `now` gives."""

    def __reduce__(self) -> tuple[Any, ...]:
        """With its types.

        Raises:
            SpecError: the file can't be read or compiled.
        """
        return TypesFile, (self.folder, self.name, self.octets())

    def now(self) -> Self:
        """The same with the types that its file has now.

        Raises:
            SpecError: the file can't be read or compiled.
        """
        octets = self.octets()
        return replace(self, taken=octets, digest=hashlib.sha256(octets).hexdigest())

    def octets(self) -> bytes:
        """The types and those that they import, as the bytes of a descriptor set.

        Raises:
            SpecError: the file can't be read or compiled.
        """
        return descriptor_set(self.folder / self.name) if self.taken is None else self.taken


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
            digest.update(
                repr((str(other), hashlib.sha256(other.read_bytes()).hexdigest())).encode()
            )
    except OSError as error:
        raise SpecError(
            f"The Protobuf file {path} can't be read: {error.strerror}", "spec", _DO
        ) from error
    return compiled_file(path.resolve(), digest.hexdigest())


@lru_cache(maxsize=16)
def compiled_file(path: Path, _digest: str) -> bytes:
    """Compiles a .proto file, once for each digest of what it is made of."""
    refuse_without_compiler(path.name)
    return by_protoc(path.parent, path.name, f"The Protobuf file {path}")


@lru_cache(maxsize=64)
def compiled_text(text: str, files: tuple[tuple[str, str], ...], place: str) -> bytes:
    """The types of a .proto file's text, as the bytes of a descriptor set whose last file it is.

    Args:
        text: the file's.
        files: what it may import, by name.
        place: where it comes from, for people.

    Raises:
        SpecError: it can't be compiled.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, content in ((_MAIN, text), *files):
            refused = SpecError(
                f"{place} can't be compiled: it refers to a file called {name[:100]!a}", "spec", _DO
            )
            if (
                not _NAME.fullmatch(name)
                or ".." in name.split("/")
                or (name == _MAIN and content is not text)
            ):
                raise refused
            try:
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / name).write_text(content, encoding="utf-8")
            except (
                FileExistsError,
                NotADirectoryError,
                IsADirectoryError,
            ):  # it is another one's folder
                raise refused from None
        try:
            return by_protoc(Path(folder), _MAIN, place)
        except SpecError as error:
            raise SpecError(error.what.replace(f"{folder}/", ""), "spec", _DO) from None


def refuse_without_compiler(name: str) -> None:
    """Say so before it is needed.

    Raises:
        SpecError: the compiler isn't installed.
    """
    if importlib.util.find_spec("grpc_tools") is None:
        raise SpecError(
            f"{name} can't be compiled: the package grpcio-tools isn't installed", "spec", _INSTALL
        )


def by_protoc(folder: Path, name: str, place: str) -> bytes:
    """By the compiler of the package grpcio-tools, in a process of its own: it ends the
    process where it fails.

    That is a Python, which must not look for its modules among the files: they may be a
    stranger's, and named like modules.
    """
    known = importlib.resources.files("grpc_tools") / "_proto"
    common = importlib.util.find_spec("google.type")
    with tempfile.TemporaryDirectory() as made:
        out, confluent = Path(made) / "set", Path(made) / "confluent"
        for file, text in CONFLUENT.items():
            (confluent / file).parent.mkdir(parents=True, exist_ok=True)
            (confluent / file).write_text(text, encoding="utf-8")
        # what is told besides counts before what is known
        places = ["-I", str(folder), "-I", str(known), "-I", str(confluent)]
        if common is not None and common.submodule_search_locations:
            places += ["-I", f"google/type={next(iter(common.submodule_search_locations))}"]
        command = [
            sys.executable,
            "-P",
            "-m",
            "grpc_tools.protoc",
            *places,
            "--include_imports",
            "--include_source_info",
        ]
        command += [f"--descriptor_set_out={out}", name]
        try:
            done = subprocess.run(
                command,
                cwd=made,
                capture_output=True,
                text=True,
                timeout=LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            what = f"{place} can't be compiled: that took more than {LIMIT_SECONDS} seconds"
            raise UnreachableError(
                what,
                "setup",
                "Try again when the machine has less to do, or give a descriptor set.",
            ) from None
        if done.returncode:
            lines = done.stderr.splitlines()  # the compiler's own log among them
            said = [line for line in lines if ".proto:" in line] or lines[-1:]
            raise SpecError(f"{place} can't be compiled: {'; '.join(said)}", "spec", _DO)
        return out.read_bytes()


def name_at(octets: bytes, path: Sequence[int], place: str) -> str:
    """The full name of a message of a descriptor set's last file, by its place there,
    and in that message, and so on.

    Raises:
        SpecError: there is none.
    """
    file = _last_file(octets)
    names, messages = [file.package] if file.package else [], file.message_type
    for step in path:
        if step >= len(messages):
            raise SpecError(f"{place} has no message at {list(path)}", "spec", _DO)
        names.append(messages[step].name)
        messages = messages[step].nested_type
    return ".".join(names)


def comments_at(octets: bytes, path: Sequence[int]) -> dict[str, str]:
    """What the last file of a descriptor set that was compiled here says before, or
    behind, the fields of a message, by their names.
    """
    file = _last_file(octets)
    said = {
        tuple(one.path): one.leading_comments or one.trailing_comments
        for one in file.source_code_info.location
    }
    messages = file.message_type
    place: tuple[int, ...] = ()
    for step in path:
        message, place = messages[step], (*place, _NESTED if place else _MESSAGES, step)
        messages = message.nested_type
    return {
        field.name: comment
        for i, field in enumerate(message.field)
        if (comment := said.get((*place, _FIELDS, i)))
    }


def message_type(octets: bytes, name: str, place: str) -> Any:
    """The descriptor of a message's type. `place`: where it comes from, for people.

    Raises:
        SpecError: the bytes are no descriptor set, it isn't whole, or has no such type.
    """
    try:
        from google.protobuf.message import (
            DecodeError,
        )  # an extra, loaded where it is asked for
    except ModuleNotFoundError as missing:
        raise SpecError("Protobuf's own library isn't installed", "spec", _INSTALL) from missing
    try:
        return _pool(octets).FindMessageTypeByName(name)
    except KeyError:
        raise SpecError(
            f"There is no message type {name} in {place}",
            "spec",
            "Name it with its package: shop.Order.",
        ) from None
    except (DecodeError, TypeError) as error:
        raise SpecError(
            f"{place} can't be used: {type(error).__name__}: {error}", "spec", _DO
        ) from None


def forget_types() -> None:
    """Read all types anew: of some of them the library's classes are half made."""
    _pool.cache_clear()


@lru_cache(maxsize=8)
def _last_file(octets: bytes) -> Any:
    from google.protobuf import descriptor_pb2  # as above

    return descriptor_pb2.FileDescriptorSet.FromString(octets).file[-1]


@lru_cache(maxsize=8)
def _pool(octets: bytes) -> Any:
    """All types of a descriptor set.

    Of a large one that takes a while, and messages may name any number of its types.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool  # as above

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(octets).file:
        pool.Add(file)
    return pool
