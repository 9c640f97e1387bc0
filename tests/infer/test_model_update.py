"""Changes of a model by what newer messages have, as edits of the model's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from windrow.ingest.errors import SpecError
from windrow.ingest.infer.json_documents import candidates_of, parse_document
from windrow.ingest.infer.model_update import change_model, find_changes, without_nulls
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference, load_model

MODEL = '''\
import pandera.polars as pa
import polars as pl

CODE = pl.Int32


class Row(pa.DataFrameModel):
    """Orders; é in a comment moves no edit."""

    id: pl.Int32 = pa.Field(ge=0)  # a rule é
    customer: pl.Struct({
        "name": pl.String,  # é
        "address": pl.Struct({"city": pl.String}),
    }) = pa.Field(nullable=True)
    lines: pl.List(pl.Struct({"sku": pl.String, "count": pl.Int16})) = pa.Field(nullable=True)
    tags: pl.List(pl.Struct({"key": pl.String, "value": pl.Struct({"n": pl.Int64})})) = pa.Field(
        nullable=True, metadata={"map": True}
    )
    other: CODE = pa.Field(alias="code", nullable=True)

    class Config:
        pass
'''
MESSAGES = [
    b'{"id": 1, "customer": {"name": "n", "address": {"city": "c", "zip": "1"}}, "more": 1.5}',
    b'{"id": 3000000000, "lines": [{"sku": "s", "count": 70000, "tax": {"rate": 7}}, null]}',
    b'{"id": 2, "tags": {"a": {"n": 1, "unit": "kg"}}, "code": 3000000000, "never": null}',
    b'{"id": 2, "empty": [], "mixed": {"x": null}, "class": true}',
]


def update(folder: Path, messages: list[bytes], text: str = MODEL) -> Any:
    (folder / "schema.py").write_bytes(text.encode())
    model = ModelReference("schema.py:Row", folder)
    documents = [without_nulls(parse_document(message)) for message in messages]
    columns = Columns.of(load_model(model))
    return change_model(model, list(find_changes(columns, candidates_of(documents), documents)))


def test_a_model_gets_what_its_messages_have(tmp_path: Path) -> None:
    """New fields at any depth are nullable, integers become as wide as values need, and each
    other byte of the file stays.
    """
    changed = update(tmp_path, MESSAGES)
    added = [line for line in changed.diff.splitlines() if line[:1] == "+"][1:]
    assert added == [
        "+    id: pl.Int64 = pa.Field(ge=0)  # a rule é",
        '+        "address": pl.Struct({"city": pl.String, "zip": pl.String}),',
        (
            '+    lines: pl.List(pl.Struct({"sku": pl.String, "count": pl.Int32, "tax":'
            ' pl.Struct({"rate": pl.Int64})})) = pa.Field(nullable=True)'
        ),
        (
            '+    tags: pl.List(pl.Struct({"key": pl.String, "value": pl.Struct({"n": pl.Int64,'
            ' "unit": pl.String})})) = pa.Field('
        ),
        "+    more: pl.Float64 = pa.Field(nullable=True)",
        '+    field_class: pl.Boolean = pa.Field(alias="class", nullable=True)',
    ]
    assert changed.by_hand == ("code: pl.Int32 to pl.Int64",)
    changed.write()
    columns = Columns.of(load_model(ModelReference("schema.py:Row", tmp_path)))
    assert columns.columns[0].constraints == ("greater_than_or_equal_to(0)",)
    assert columns.arrow_schema.field("class") == pa.field("class", pa.bool_())
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["schema.py"]


def test_nothing_changes_twice(tmp_path: Path) -> None:
    """A changed model takes the messages, so the next update has no change that it can make."""
    changed = update(tmp_path, MESSAGES)
    again = update(tmp_path, MESSAGES, changed.text.decode())
    assert (again.diff, again.by_hand) == ("", changed.by_hand)


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    """A file that an editor of Windows began with a mark is changed like any other."""
    marked = update(tmp_path, MESSAGES, f"\ufeff{MODEL}")
    assert marked.text.decode() == f"\ufeff{update(tmp_path, MESSAGES).text.decode()}"


@pytest.mark.parametrize(
    "message", [b'{"id": 5}', b'{"id": "text"}', b'{"id": 1.5, "lines": {}}', b'{"lines": "x"}']
)
def test_nothing_becomes_narrower(tmp_path: Path, message: bytes) -> None:
    """Smaller values, values of other kinds and missing fields change nothing."""
    assert update(tmp_path, [message]).diff == ""


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    """A file that isn't in UTF-8 stays as it is, and the message says what to do."""
    latin = f"# coding: latin-1\n{MODEL}".encode("latin-1")
    (tmp_path / "schema.py").write_bytes(latin)
    with pytest.raises(SpecError, match="UTF-8"):
        change_model(ModelReference("schema.py:Row", tmp_path), [])
