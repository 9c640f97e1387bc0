"""Changes by which a model takes the fields of newer messages, as edits of the model's file.

A change adds a nullable field, at any depth, or makes an integer wider. Nothing is removed,
renamed or made narrower, and the rest of the file stays as it is, byte by byte.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.infer.candidates import Candidate, TypeGuess, nested
from windrow.ingest.infer.json_documents import guess_type
from windrow.ingest.infer.pipeline_files import class_lines, quote, reserved_names, type_text
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.dtypes import map_type
from windrow.ingest.schema.user_code import ModelReference, load_model

ITEMS, ENTRIES = "[]", "{}"
"""Steps of a path to the elements of a list, and to the values of a map."""

_INTEGERS = (pa.int16(), pa.int32(), pa.int64())


@dataclass(frozen=True)
class ModelChange:
    """A new field of a model, or a wider integer.

    Attributes:
        path: the names of the column and of the fields inside it, and `ITEMS` and `ENTRIES`.
        candidate: the field as it becomes.
        old: the type of an integer that becomes wider; None for a new field.
    """

    path: tuple[str, ...]
    candidate: Candidate
    old: pa.DataType | None = None

    def widens(self, change: ModelChange) -> bool:
        """Returns whether the integer becomes wider than by another change of it."""
        wide, narrow = self.candidate.guess.type, change.candidate.guess.type
        if self.old is None or wide is None or narrow is None:
            return False
        return bool(wide.bit_width > narrow.bit_width)

    def __str__(self) -> str:
        name = self.path[0] + "".join(
            s if s in {ITEMS, ENTRIES} else f".{s}" for s in self.path[1:]
        )
        types = [type_text(k) for k in (self.old, self.candidate.guess.type) if k is not None]
        return f"{name}: {' to '.join(types)}"


def find_changes(
    columns: Columns, candidates: Sequence[Candidate], documents: Sequence[Mapping[str, Any]] | None
) -> Iterator[ModelChange]:
    """Yields the changes by which columns take all fields of candidates.

    Args:
        columns: the columns of the messages' values.
        candidates: the fields, each of which can be a column if it isn't one.
        documents: the sampled documents, without nulls; None if a schema states the types.
    """
    column_by_name = {column.name: column for column in columns.columns}
    for candidate in candidates:
        name, kind = candidate.name, candidate.guess.type
        column = column_by_name.get(name)
        values = None if documents is None else [d[name] for d in documents if name in d]
        if column is None and kind is not None and not candidate.guess.lenient:
            yield ModelChange((name,), replace(candidate, nullable=True, default=""))
        elif column is not None and kind is not None:
            yield from _changes_inside((name,), column.type, kind, values)


def _changes_inside(
    path: tuple[str, ...], kind: pa.DataType, seen: pa.DataType, values: Sequence[Any] | None
) -> Iterator[ModelChange]:
    """Yields the changes of a type by which it takes what was seen."""
    entries = map_type(seen) if pa.types.is_map(kind) else None
    if pa.types.is_map(kind) and values is not None:
        inner = [v for value in values if isinstance(value, dict) for v in value.values()]
        guess = nested(guess_type(inner))
        if guess.type is not None and inner:
            yield from _changes_inside((*path, ENTRIES), kind.item_type, guess.type, inner)
    elif pa.types.is_map(kind) and (entries is not None or pa.types.is_map(seen)):
        item = seen.item_type if entries is None else entries.item_type
        yield from _changes_inside((*path, ENTRIES), kind.item_type, item, None)
    elif pa.types.is_struct(kind) and pa.types.is_struct(seen):
        objects = None if values is None else [v for v in values if isinstance(v, dict)]
        for field in seen:
            of_field = (
                None if objects is None else [v[field.name] for v in objects if field.name in v]
            )
            index = kind.get_field_index(field.name)
            if index >= 0:
                inner_path = (*path, field.name)
                yield from _changes_inside(inner_path, kind.field(index).type, field.type, of_field)
            elif field.name.casefold() not in {f.name.casefold() for f in kind}:
                new = Candidate(field.name, TypeGuess(field.type), nullable=True)
                yield ModelChange((*path, field.name), new)
    elif pa.types.is_list(kind) and pa.types.is_list(seen):
        items = None if values is None else [i for v in values if isinstance(v, list) for i in v]
        yield from _changes_inside((*path, ITEMS), kind.value_type, seen.value_type, items)
    elif pa.types.is_signed_integer(kind) and pa.types.is_signed_integer(seen):
        wide = seen if values is None else _narrowest_type(values)
        if wide.bit_width > kind.bit_width:
            yield ModelChange(path, Candidate(path[-1], TypeGuess(wide), nullable=True), kind)


def _narrowest_type(values: Sequence[Any]) -> pa.DataType:
    """Returns the narrowest type that holds the integers among values, which have 64 bits."""
    numbers = [value for value in values if isinstance(value, int)]
    bits = max(((n if n >= 0 else ~n).bit_length() for n in numbers), default=0)
    return next((kind for kind in _INTEGERS if bits < kind.bit_width), pa.int64())


def without_nulls(value: Any) -> Any:
    """Returns a document without nulls, empty lists and empty objects, which have no type."""
    if isinstance(value, dict):
        inner = {name: without_nulls(v) for name, v in value.items()}
        return {name: v for name, v in inner.items() if v is not None} or None
    if isinstance(value, list):
        return [v for v in map(without_nulls, value) if v is not None] or None
    return value


class ModelUpdate(msgspec.Struct, frozen=True):
    """What `windrow infer --update` shows.

    Attributes:
        pipeline: the pipeline's id.
        schema: the model's file.
        changes: the changes in words.
        by_hand: those that only a person can make, because of how the model is written.
        diff: the other changes of the file, as a unified diff; "" for none.
        written: whether the file was changed.
    """

    pipeline: str
    schema: str
    changes: tuple[str, ...]
    by_hand: tuple[str, ...]
    diff: str
    written: bool


@dataclass(frozen=True)
class ChangedModel:
    """A model's file with changes that aren't written yet.

    Attributes:
        path: the file.
        text: its new text.
        by_hand: the changes that the text lacks, in words.
        diff: a unified diff.
    """

    path: Path
    text: bytes
    by_hand: tuple[str, ...]
    diff: str

    def write(self) -> None:
        """Replaces the file by one with the new text.

        Raises:
            SpecError: it can't be written; the file stays as it was.
        """
        path = self.path.resolve()
        new = path.with_name(f".{path.name}.new")
        try:
            new.write_bytes(self.text)
            shutil.copymode(path, new)
            new.replace(path)
        except OSError as error:
            new.unlink(missing_ok=True)
            message = f"The schema file {path} can't be written: {error.strerror}"
            raise SpecError(
                message, "spec", "Nothing was changed. Fix that, and run it again."
            ) from error


def change_model(model: ModelReference, changes: Sequence[ModelChange]) -> ChangedModel:
    """Returns a model's file with the changes.

    Raises:
        SpecError: the model isn't in a file in UTF-8, or it couldn't be loaded after the changes.
    """
    if not model.is_file:
        raise SpecError(
            f"The schema {model} is in a module, and --update changes FILE.py alone",
            "spec",
            f"Change it by hand: {'; '.join(map(str, changes)) or 'nothing is new'}.",
        )
    try:
        old = model.content().decode()
    except UnicodeDecodeError:
        raise SpecError(
            f"The schema file {model.path} isn't in UTF-8, and --update changes no other",
            "spec",
            "Nothing was changed. Save it in UTF-8 without a `coding:` line, and run this again.",
        ) from None
    new, lacking = edit_model(old, model.name, changes)
    columns = Columns.of(load_model(model))
    changed = Columns.of(load_model(replace(model, text=new.encode())))
    kept = [(c.name, c.nullable, c.constraints) for c in columns.columns]
    assert kept == [(c.name, c.nullable, c.constraints) for c in changed.columns[: len(kept)]]
    before, after = (text.splitlines(keepends=True) for text in (old, new))
    diff = "".join(unified_diff(before, after, model.file_or_module, model.file_or_module))
    return ChangedModel(model.path, new.encode(), tuple(map(str, lacking)), diff)


# --------------------------------------------------------------------------------------------------


def edit_model(
    text: str, class_name: str, changes: Sequence[ModelChange]
) -> tuple[str, list[ModelChange]]:
    """Returns the text of a model's file with the changes, and the changes that it lacks.

    A change isn't made if its column isn't in the class itself, or if its type is written in
    another way than `pl.Struct({...})`, `pl.List(...)` and `pl.Int64`.
    """
    fields = [
        field
        for node in ast.walk(ast.parse(text.encode()))
        if isinstance(node, ast.ClassDef) and node.name == class_name
        for field in node.body
        if isinstance(field, ast.AnnAssign)
    ]
    names = {node.target.id for node in fields if isinstance(node.target, ast.Name)}
    annotation_by_column = {_column_name(node): node.annotation for node in fields}
    lines = text.encode().splitlines(keepends=True)
    starts = list(accumulate(map(len, lines), initial=0))
    edits: list[tuple[int, int, str]] = []
    lacking = []
    new_columns = []
    for change in changes:
        if len(change.path) == 1 and change.old is None and fields:
            new_columns.append(change.candidate)
            continue
        annotation = annotation_by_column.get(change.path[0])
        edit = None if annotation is None else _edit_inside(annotation, change, starts)
        edits += [] if edit is None else [edit]
        lacking += [change] if edit is None else []
    if new_columns:
        end = _line_end(fields[-1], lines, starts)
        indent = " " * fields[-1].col_offset
        written = class_lines(new_columns, reserved_names() | names)
        edits.append((end, end, "".join(f"\n{indent}{line}" for line in written)))
    return _apply_edits(text.encode(), edits), lacking


def _column_name(field: ast.AnnAssign) -> str:
    """Returns the name of a field's column: its alias, if it has one."""
    options = field.value.keywords if isinstance(field.value, ast.Call) else []
    aliases = [
        o.value.value for o in options if o.arg == "alias" and isinstance(o.value, ast.Constant)
    ]
    return str(aliases[0]) if aliases else ast.unparse(field.target)


def _line_end(field: ast.AnnAssign, lines: Sequence[bytes], starts: Sequence[int]) -> int:
    number = (field.end_lineno or field.lineno) - 1
    return starts[number] + len(lines[number].rstrip(b"\r\n"))


def _edit_inside(
    annotation: ast.expr, change: ModelChange, starts: Sequence[int]
) -> tuple[int, int, str] | None:
    """Returns the edit of a column's type: start, end, and the text there.

    Returns None if the type is written in a way that isn't known.
    """
    node: ast.expr | None = annotation
    steps = change.path[1:] if change.old is not None else change.path[1:-1]
    for step in steps:
        node = None if node is None else _inner_type(node, step)
    kind = change.candidate.guess.type
    assert kind is not None  # changes are of candidates with a type
    if change.old is not None:
        if node is None or ast.unparse(node) != type_text(change.old):
            return None
        start, end = (
            starts[line - 1] + offset
            for line, offset in (
                (node.lineno, node.col_offset),
                (node.end_lineno or 0, node.end_col_offset or 0),
            )
        )
        return start, end, type_text(kind)
    fields = _struct_fields(node)
    if fields is None or not fields.values:
        return None
    last = fields.values[-1]
    end = starts[(last.end_lineno or 0) - 1] + (last.end_col_offset or 0)
    return end, end, f", {quote(change.candidate.name)}: {type_text(kind)}"


def _struct_fields(node: ast.expr | None) -> ast.Dict | None:
    """Returns the fields of `pl.Struct({...})`."""
    inner = None if node is None else _argument(node, "Struct")
    return inner if isinstance(inner, ast.Dict) else None


def _argument(node: ast.expr, name: str) -> ast.expr | None:
    """Returns the argument of `pl.List(...)` or `pl.Struct(...)`."""
    is_call = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
    return node.args[0] if is_call and isinstance(node, ast.Call) and node.args else None


def _inner_type(node: ast.expr, step: str) -> ast.expr | None:
    """Returns the type inside a type, by a step of a path."""
    if step == ITEMS:
        return _argument(node, "List")
    entries = _argument(node, "List") if step == ENTRIES else node
    fields, name = _struct_fields(entries), "value" if step == ENTRIES else step
    if fields is None:
        return None
    named = {
        key.value: v
        for key, v in zip(fields.keys, fields.values, strict=True)
        if isinstance(key, ast.Constant)
    }
    return named.get(name)


def _apply_edits(text: bytes, edits: Sequence[tuple[int, int, str]]) -> str:
    """Makes edits that don't overlap; those at one position come in their order."""
    pieces, position = [], 0
    for start, end, new in sorted(edits, key=lambda edit: edit[0]):
        pieces += [text[position:start], new.encode()]
        position = end
    return b"".join([*pieces, text[position:]]).decode()
