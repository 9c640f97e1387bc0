"""Message types from a descriptor set, or from a .proto file that is compiled here."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from windrow.ingest.errors import SpecError, UnreachableError, how_to_install, needing

LIMIT_SECONDS = 60
"""Most seconds that the compiler may take."""
_MAIN = "windrow-schema.proto"
"""The name under which a text is compiled."""
_MESSAGES, _NESTED, _FIELDS = 4, 3, 2
"""Numbers in the path of a comment: a file's messages, a message's messages, its fields.

They are field numbers of Google's descriptor.proto.
"""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,200}")
_DO = (
    "Give a .proto file, or a descriptor set (`protoc --include_imports --descriptor_set_out`)."
    " Nothing was read."
)


@dataclass(frozen=True)
class TypesFile:
    """Descriptor set or .proto file of a spec, by its `name` relative to `folder`.

    - `loaded`: the file's types, if `now` made this value, or it was unpickled. A worker
      may run on a machine that doesn't have the file, so pickling reads it. None: the
      file is read each time the types are needed.
    - `digest`: the digest of the types, if `now` made this value.
    """

    folder: Path
    name: str
    loaded: bytes | None = field(default=None, compare=False, repr=False)
    digest: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the file with its types."""
        return TypesFile, (self.folder, self.name, self.octets())

    def now(self) -> Self:
        """Returns this file with the types that it has now."""
        octets = self.octets()
        return replace(self, loaded=octets, digest=hashlib.sha256(octets).hexdigest())

    def octets(self) -> bytes:
        """Returns the file's types and those that it imports, as a descriptor set.

        Raises:
            SpecError: the file can't be read or compiled.
        """
        return descriptor_set(self.folder / self.name) if self.loaded is None else self.loaded


def descriptor_set(path: Path) -> bytes:
    """Returns a file's types and those that it imports, as a descriptor set.

    Raises:
        SpecError: the file can't be read or compiled.
    """
    try:
        octets = path.read_bytes()
        if path.suffix != ".proto":
            return octets
        digest = hashlib.sha256()
        for imported in sorted(path.parent.rglob("*.proto")):  # all files that it may import
            digest.update(
                repr((str(imported), hashlib.sha256(imported.read_bytes()).hexdigest())).encode()
            )
    except OSError as error:
        raise SpecError(
            f"The Protobuf file {path} can't be read: {error.strerror}", "spec", _DO
        ) from error
    return compiled_file(path.resolve(), digest.hexdigest())


@lru_cache(maxsize=16)
def compiled_file(path: Path, _digest: str) -> bytes:
    """Compiles a .proto file, once for each digest of the files in its folder."""
    refuse_without_compiler(path.name)
    return by_protoc(path.parent, path.name, f"The Protobuf file {path}")


@lru_cache(maxsize=64)
def compiled_text(text: str, files: tuple[tuple[str, str], ...], origin: str) -> bytes:
    """Compiles the text of a .proto file to a descriptor set, whose last file it is.

    The official Python serializer registers its files' descriptors in base64. Not every
    registry makes text of them, so each text may be such a descriptor, too.

    Args:
        text: the file's text.
        files: the names and texts of the files that it may import.
        origin: where the text comes from, for people.

    Raises:
        SpecError: the text can't be compiled.
        UnreachableError: the compiler took too long.
    """
    described = []
    with tempfile.TemporaryDirectory() as folder:
        for name, content in ((_MAIN, text), *files):
            refused = SpecError(
                f"{origin} can't be compiled: it refers to a file called {name[:100]!a}",
                "spec",
                _DO,
            )
            if (
                not _NAME.fullmatch(name)
                or ".." in name.split("/")
                or (name == _MAIN and content is not text)
            ):
                raise refused
            if (file := described_by(content, name)) is not None:
                described.append(file)
                continue
            try:
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / name).write_text(content, encoding="utf-8")
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                # one file's name is another one's folder
                raise refused from None
        try:
            return by_protoc(Path(folder), _MAIN, origin, described)
        except SpecError as error:
            raise SpecError(error.what.replace(f"{folder}/", ""), "spec", _DO) from None


def described_by(text: str, name: str = "") -> Any:
    """Returns the descriptor of a file that a text is in base64; None if it is another text.

    `name`: the file's name from now on.
    """
    from google.protobuf import descriptor_pb2, message  # an extra, loaded where it is used

    try:
        return descriptor_pb2.FileDescriptorProto.FromString(
            base64.b64decode(text, validate=True)
            + descriptor_pb2.FileDescriptorProto(name=name).SerializeToString()
        )
    except (ValueError, message.DecodeError):
        return None


def refuse_without_compiler(name: str) -> None:
    """Refuses to compile `name` if the compiler isn't installed.

    Raises:
        SpecError: the compiler isn't installed.
    """
    if importlib.util.find_spec("grpc_tools") is None:
        raise SpecError(
            f"{name} can't be compiled: the package grpcio-tools isn't installed",
            "spec",
            how_to_install("protobuf"),
        )


def by_protoc(folder: Path, name: str, origin: str, described: Sequence[Any] = ()) -> bytes:
    """Compiles a .proto file with the compiler of the package grpcio-tools.

    `described`: descriptors of files that aren't in the folder.

    The compiler runs in a process of its own, since it ends the process if it fails. The
    process is a Python that must not import modules from the files' folder (`-P`, and
    another working directory): the files may come from a stranger, and be named like
    modules.
    """
    from google.protobuf import descriptor_pb2  # an extra, as below

    well_known = importlib.resources.files("grpc_tools") / "_proto"
    common = importlib.util.find_spec("google.type")
    with tempfile.TemporaryDirectory() as work_folder:
        out, confluent = Path(work_folder) / "set", Path(work_folder) / "confluent"
        for file, text in CONFLUENT.items():
            (confluent / file).parent.mkdir(parents=True, exist_ok=True)
            (confluent / file).write_text(text, encoding="utf-8")
        (Path(work_folder) / "described").write_bytes(
            descriptor_pb2.FileDescriptorSet(file=described).SerializeToString()
        )
        # the schema's own files come before the well-known ones of the same name
        folders = ["-I", str(folder), "-I", str(well_known), "-I", str(confluent)]
        if common is not None and common.submodule_search_locations:
            folders += ["-I", f"google/type={next(iter(common.submodule_search_locations))}"]
        command = [
            sys.executable,
            "-P",
            "-m",
            "grpc_tools.protoc",
            *folders,
            "--include_imports",
            "--include_source_info",
        ]
        command += [
            f"--descriptor_set_in={work_folder}/described",
            f"--descriptor_set_out={out}",
            name,
        ]
        try:
            compilation = subprocess.run(
                command,
                cwd=work_folder,
                capture_output=True,
                text=True,
                timeout=LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnreachableError(
                f"{origin} can't be compiled: it took more than {LIMIT_SECONDS} seconds",
                "setup",
                "Try again when the machine has less to do, or give a descriptor set.",
            ) from None
        if compilation.returncode:
            lines = compilation.stderr.splitlines()  # some are the compiler's own log
            errors = [line for line in lines if ".proto:" in line] or lines[-1:]
            raise SpecError(f"{origin} can't be compiled: {'; '.join(errors)}", "spec", _DO)
        return out.read_bytes()


def name_at(octets: bytes, path: Sequence[int], origin: str) -> str:
    """Returns the full name of a message in the last file of a descriptor set.

    `path`: the message's number in the file, then a number in that message, and so on.

    Raises:
        SpecError: the file has no message at this path.
    """
    file = _last_file(octets)
    names, messages = [file.package] if file.package else [], file.message_type
    for step in path:
        if step >= len(messages):
            raise SpecError(f"{origin} has no message at path {list(path)}", "spec", _DO)
        names.append(messages[step].name)
        messages = messages[step].nested_type
    return ".".join(names)


def comments_at(octets: bytes, path: Sequence[int]) -> dict[str, str]:
    """Returns the comments on the fields of a message, by the fields' names.

    They are those before, or else after, each field in the last file of a descriptor set
    that was compiled here. `path`: as in `name_at`.
    """
    file = _last_file(octets)
    comments = {
        tuple(location.path): location.leading_comments or location.trailing_comments
        for location in file.source_code_info.location
    }
    messages = file.message_type
    numbers: tuple[int, ...] = ()
    for step in path:
        message, numbers = messages[step], (*numbers, _NESTED if numbers else _MESSAGES, step)
        messages = message.nested_type
    return {
        field.name: comment
        for i, field in enumerate(message.field)
        if (comment := comments.get((*numbers, _FIELDS, i)))
    }


def message_type(octets: bytes, name: str, origin: str) -> Any:
    """Returns the descriptor of a message type. `origin`: where it comes from, for people.

    Raises:
        SpecError: the bytes are no descriptor set, miss a file, or have no such type.
    """
    with needing("protobuf", "Protobuf can't be decoded"):
        from google.protobuf.message import DecodeError
    try:
        return _pool(octets).FindMessageTypeByName(name)
    except KeyError:
        raise SpecError(
            f"{origin} has no message type {name}",
            "spec",
            "Give the type's full name with its package, as in shop.Order.",
        ) from None
    except (DecodeError, TypeError) as error:
        raise SpecError(
            f"{origin} can't be used: {type(error).__name__}: {error}", "spec", _DO
        ) from None


def forget_types() -> None:
    """Drops all types, to read them anew: the library has made classes of some only in part."""
    _pool.cache_clear()


@lru_cache(maxsize=8)
def _last_file(octets: bytes) -> Any:
    from google.protobuf import descriptor_pb2  # an extra, loaded where it is used

    return descriptor_pb2.FileDescriptorSet.FromString(octets).file[-1]


@lru_cache(maxsize=8)
def _pool(octets: bytes) -> Any:
    """Returns all types of a descriptor set.

    They are kept, since reading a large set takes a while, and messages may name any
    number of its types.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool  # an extra, as above

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(octets).file:
        pool.Add(file)
    return pool


# --------------------------------------------------------------------------------------------------


_META = """\
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";

message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule {
  string name = 1;
  string doc = 2;
  string expr = 3;
  string sql = 4;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL = """\
syntax = "proto3";
package confluent.type;

message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""
_VARIANT = """\
syntax = "proto3";
package confluent.type;

message Variant {
  bytes metadata = 1;
  bytes value = 2;
}
"""

CONFLUENT: Mapping[str, str] = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    "confluent/type/variant.proto": _VARIANT,
    "confluent/types/decimal.proto": (
        'syntax = "proto3"; import public "confluent/type/decimal.proto";'
    ),
}
"""Confluent's own .proto files, by the names in `import`, which a registered schema may import.

Confluent's serializers bring these files and don't register them, so the registry doesn't
have them. Google's well-known types (`google/protobuf/*.proto`) come with the compiler,
its common types (`google/type/*.proto`) with their own package.
"""
