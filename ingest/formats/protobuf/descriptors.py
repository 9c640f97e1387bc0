"""Message types from a descriptor set, or from a .proto file that this module compiles."""

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

from windrow.ingest.errors import SpecError, UnreachableError, how_to_install, require_extra

LIMIT_SECONDS = 60
"""Timeout of the compiler, in seconds."""
_MAIN = "windrow-schema.proto"
"""File name under which a text is compiled."""
_MESSAGES, _NESTED, _FIELDS = 4, 3, 2
"""Numbers in the path of a comment: a file's messages, a message's messages, a message's fields.

They are field numbers of Google's descriptor.proto.
"""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,200}")
_DO = (
    "Give a .proto file, or a descriptor set (`protoc --include_imports --descriptor_set_out`)."
    " Nothing was read."
)


@dataclass(frozen=True)
class TypesFile:
    """Descriptor set or .proto file of a spec.

    Attributes:
        folder: the spec's folder.
        name: the file's name, relative to `folder`.
        loaded: the file's types as a descriptor set, if `now` made this value or it was
            unpickled. A worker may run on a machine without the file, so pickling reads it.
            If None, the file is read each time the types are needed.
        digest: the digest of the types if `now` made this value, else "".
    """

    folder: Path
    name: str
    loaded: bytes | None = field(default=None, compare=False, repr=False)
    digest: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the types with the file's name."""
        return TypesFile, (self.folder, self.name, self.octets())

    def now(self) -> Self:
        """Returns this file with the types that it has now."""
        octets = self.octets()
        return replace(self, loaded=octets, digest=hashlib.sha256(octets).hexdigest())

    def octets(self) -> bytes:
        """Returns the file's types and the types that it imports, as a descriptor set.

        Raises:
            SpecError: the file can't be read or compiled.
        """
        return descriptor_set(self.folder / self.name) if self.loaded is None else self.loaded


def descriptor_set(path: Path) -> bytes:
    """Returns a file's types and the types that it imports, as a descriptor set.

    Raises:
        SpecError: the file can't be read or compiled.
    """
    try:
        octets = path.read_bytes()
        if path.suffix != ".proto":
            return octets
        digest = hashlib.sha256()
        for imported in sorted(path.parent.rglob("*.proto")):  # all files that it can import
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
    """Compiles the text of a .proto file. It becomes the last file of a descriptor set.

    Confluent's Python serializer registers file descriptors in base64, and some registries
    don't convert them to text. So each text may also be such a descriptor.

    Args:
        text: the file's text.
        files: the names and texts of the files that it may import.
        origin: the source of the text, for errors.

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
                # A file has the name of another file's folder.
                raise refused from None
        try:
            return by_protoc(Path(folder), _MAIN, origin, described)
        except SpecError as error:
            raise SpecError(error.message.replace(f"{folder}/", ""), "spec", _DO) from None


def described_by(text: str, name: str = "") -> Any:
    """Returns the file descriptor that a text holds in base64; None if it holds no descriptor.

    Args:
        text: the text.
        name: the new name of the file.
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
    """Refuses to compile the file `name` if the compiler isn't installed.

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

    The compiler runs in a separate process, because it ends its process if it fails. The
    files may come from a stranger, and be named like Python modules. So the process must not
    import modules from the files' folder: it runs with `-P`, in another working directory.

    Args:
        folder: the folder of the files.
        name: the name of the file to compile.
        origin: the source of the file, for errors.
        described: descriptors of files that aren't in the folder.
    """
    from google.protobuf import descriptor_pb2  # an extra, loaded where it is used

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
        # The first folder has the schema's own files, which win over well-known files of the
        # same name.
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
            lines = compilation.stderr.splitlines()  # Some lines are the compiler's log.
            errors = [line for line in lines if ".proto:" in line] or lines[-1:]
            raise SpecError(f"{origin} can't be compiled: {'; '.join(errors)}", "spec", _DO)
        return out.read_bytes()


def name_at(octets: bytes, path: Sequence[int], origin: str) -> str:
    """Returns the full name of a message in the last file of a descriptor set.

    Args:
        octets: the descriptor set.
        path: the message's number in the file, then the number of a message inside that
            message, and so on.
        origin: the source of the file, for errors.

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

    A field's comment is the comment before it, or else the comment after it.

    Args:
        octets: a descriptor set that this module compiled; its last file has the message.
        path: the path of the message, as for `name_at`.
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
    """Returns the descriptor of a message type.

    Args:
        octets: a descriptor set.
        name: the full name of the message type.
        origin: the source of the descriptor set, for errors.

    Raises:
        SpecError: the bytes are no descriptor set, miss a file, or don't have the type.
    """
    with require_extra("protobuf", "Protobuf can't be decoded"):
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
    """Drops all types, so that they are read again.

    After a RecursionError, the library has made the classes of some types only in part.
    """
    _pool.cache_clear()


@lru_cache(maxsize=8)
def _last_file(octets: bytes) -> Any:
    from google.protobuf import descriptor_pb2  # an extra, loaded where it is used

    return descriptor_pb2.FileDescriptorSet.FromString(octets).file[-1]


@lru_cache(maxsize=8)
def _pool(octets: bytes) -> Any:
    """Returns all types of a descriptor set.

    They are cached, because reading a large set is slow, and messages may name any number of
    its types.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool  # an extra, loaded where used

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
"""Confluent's own .proto files, which a registered schema may import, by their import names.

Confluent's serializers contain these files and don't register them, so the registry doesn't
have them. Google's well-known types (`google/protobuf/*.proto`) come with the compiler.
Google's common types (`google/type/*.proto`) come with a separate package.
"""
