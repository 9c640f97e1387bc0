"""Names and values that others write never lead out of the place that a setting gives them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest

from tests.formats.confluent.registries import framed
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.confluent.frame import frames_of
from windrow.ingest.formats.protobuf.descriptors import compiled_text
from windrow.ingest.infer.candidates import Candidate, TypeGuess
from windrow.ingest.infer.pipeline_files import class_lines, schema_text
from windrow.ingest.lookups.http.request import UnaskableError, target_of
from windrow.ingest.sinks.delta.stage import part_path
from windrow.ingest.sinks.kit.files.staged_files import staged_path
from windrow.ingest.testing.contracts.values import messages_with

NAMES = (
    "..",
    "../../etc/passwd",
    "a/../../b",
    "..\\..\\b",
    "/etc/passwd",
    "//host/path",
    "http://host/path",
    "%2e%2e",
    "%2e%2e%2fb",
    "%00",
    "a\0b",
    "a\nb\r\nHost: c",
    "a?b#c&d=e",
    'a"b\'c`d";--',
    '"""\nimport os\n"""',
    "{{ env.HOME }}",
    "\u202eb\u2028c",
    "ä😀",
    "..\u2215..",
    "x" * 300,
    "",
)


def in_address(name: str) -> None:
    """A key is one segment of a lookup's path, and one value of its query."""
    try:
        target = target_of("/v1/{key}/x?q={key}", {"key": name}).decode("ascii")
    except UnaskableError:
        return
    address = urlsplit(f"http://service{target}")
    assert address.netloc == "service"
    assert address.path.count("/") == 3
    assert unquote(address.path.split("/")[2]) == name != ".."
    assert address.query.count("=") == 1
    assert not address.fragment


def in_schema_id(name: str) -> None:
    """The id that a message names is a number or a GUID, whatever the bytes are."""
    for value in (framed(0, b"") + name.encode(), b"\1" + name.encode().ljust(17, b".")):
        (frame,) = frames_of(messages_with([value]), "none", paths=False).frames
        assert frame.id.replace("-", "").isalnum()
        assert frame.id.isascii()


def in_imports(name: str) -> None:
    """The files of a registry's schema are written below one folder, or not at all."""
    plain = name.isascii() and name.isalnum() and name
    if plain:
        return  # a name like any other
    with pytest.raises(SpecError, match="refers to a file called"):
        compiled_text('syntax = "proto3";', ((name, ""),), "here")


def in_code(name: str) -> None:
    """A field of a sampled message is a name of a class in code that does nothing else."""
    field = Candidate(name, TypeGuess(pa.struct([(name, pa.int64())]), name), True, name)
    lines = class_lines([field, Candidate(name, TypeGuess(None, name), True)], frozenset())
    *_, model = ast.parse(schema_text("Row", "A row", lines)).body
    assert isinstance(model, ast.ClassDef)
    (column,) = model.body
    assert isinstance(column, ast.AnnAssign)
    assert [word.value for word in ast.walk(column) if isinstance(word, ast.Constant)].count(
        name
    ) == 1 + (name != getattr(column.target, "id", ""))


def in_partition(name: str) -> None:
    """A partition is one folder of a Delta table."""
    path = part_path("window", name, "attempt")
    assert len(path.split("/")) == 3
    assert path.startswith("data/window=")


def in_attempt(name: str) -> None:
    """An attempt is a part of a file's name."""
    assert staged_path("data/window", name).count("/") == 2
    assert staged_path("data/window", name).isascii()


PLACES: tuple[Callable[[str], None], ...] = (
    in_address,
    in_schema_id,
    in_imports,
    in_code,
    in_partition,
    in_attempt,
)
"""Where a value or a name of somebody else becomes a part of a path, an address or code."""


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_no_name_leads_elsewhere(place: Callable[[str], None]) -> None:
    """A name with dots, slashes, escapes, quotes or control characters stays one name.

    Otherwise it is refused.
    """
    for name in NAMES:
        place(name)
