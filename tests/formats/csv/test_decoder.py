"""CSV with the options of a spec, unusable models, and nulls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.csv.decoder import CsvEncoding
from windrow.ingest.formats.csv.kind import CsvSection
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.values import dead, messages_with

HERE = Path(__file__).parent


def rows(lines: list[bytes | None], **options: Any) -> list[dict[str, Any]]:
    """Returns the rows that the lines become with the model `Order`."""
    section = CsvSection.model_validate({"schema": "models.py:Order", **options})
    return section.decoder(HERE).open()(messages_with(lines)).rows.to_pylist()


@pytest.mark.parametrize(
    ("options", "line", "note"),
    [
        ({}, b'1,a,2,""', ""),
        ({}, b"1,a,2,", ""),
        ({"null_literal": ""}, b"1,a,2,", None),
        ({"null_literal": ""}, b'1,a,2,""', ""),
        ({"null_literal": "NULL"}, b"1,a,2,NULL", None),
        ({"null_literal": "NULL"}, b'1,a,2,"NULL"', "NULL"),
        ({"null_literal": "\\N", "escape": "\\"}, b"1,a,2,\\N", None),
        ({"null_literal": "none"}, b"1,a,2,none", "none"),
        ({"delimiter": "\t"}, b"1\ta\t2\tx,y", "x,y"),
        ({"quote": "'"}, b"1,a,2,'x,y'", "x,y"),
        ({"quote": "none"}, b'1,a,2,"', '"'),
        ({"quote": "none", "escape": "\\"}, b"1,a,2,x\\,y", "x,y"),
        ({"escape": "\\"}, b'1,a,2,"x\\"y"', 'x"y'),
        ({"escape": "\\"}, b'1,a,2,"x\\n\\\\n\\q"', "x\n\\nq"),
        (
            {"quote": "none", "escape": "\\"},
            b"1,a,2,a\\tb\\nc\\rd\\0\\b\\f\\v\\Z",
            "a\tb\nc\rd\0\b\f\v\x1a",
        ),
        ({"quote": "none", "escape": "\\"}, b"1,a,2,a\\\nb\\\n", "a\nb\n"),
        ({"delimiter": "\t", "escape": "\\"}, b"1\ta\t2\tx\\\ty", "x\ty"),
        ({"quote": "none", "escape": "\\", "null_literal": "\\N"}, b"1,a,2,\\\\N", "\\N"),
    ],
)
def test_each_option_changes_what_a_line_says(
    options: dict[str, Any], line: bytes, note: str | None
) -> None:
    """Each option of the dialect changes the value of the last field."""
    assert [row["note"] for row in rows([line], **options)] == [note]


def test_timestamps_in_other_forms() -> None:
    """Timestamps are read in SQL's form, as numbers and in ISO 8601."""
    empty = [""] * 7
    for form, text in (
        ("sql", "2026-01-05 09:00:00"),
        ("epoch_ms", "1767603600000"),
        ("iso-8601", "2026-01-05T09:00:00Z"),
    ):
        section = CsvSection.model_validate(
            {"schema": "models.py:Every", "null_literal": "", "timestamps": form}
        )
        decoded = section.decoder(HERE).open()(
            messages_with([",".join([*empty, text, "", "", ""]).encode()])
        )
        assert [row["at"].isoformat() for row in decoded.rows.to_pylist()] == [
            "2026-01-05T09:00:00+00:00"
        ]


def test_timestamps_without_an_offset_or_finer_than_a_microsecond() -> None:
    """Timestamps without an offset use the spec's zone, and finer ones are cut or refused.

    Cut timestamps are counted. Both decoders do the same.
    """
    lines = [
        ",".join([*[""] * 7, text, "", "", ""]).encode()
        for text in ("2026-01-05 09:00", "2026-01-05T08:00:00.0000009Z")
    ]
    for finer, row_index, truncated in (("truncate", [0, 1], 1), ("dead", [0], 0)):
        options = {
            "schema": "models.py:Every",
            "null_literal": "",
            "zone": "Europe/Berlin",
            "finer": finer,
        }
        decoded = CsvSection.model_validate(options).decoder(HERE).open()(messages_with(lines))
        assert {row["at"].isoformat() for row in decoded.rows.to_pylist()} == {
            "2026-01-05T08:00:00+00:00"
        }
        assert (decoded.row_index.to_pylist(), decoded.truncated) == (row_index, truncated)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zone": "Berlin"}, "must be the name of a time zone"),
        ({"zone": "UTC", "timestamps": "epoch_s"}, "goes with timestamps that are text"),
        ({"delimiter": ",,"}, "must be one character"),
        ({"delimiter": "a"}, "must be one character"),
        ({"delimiter": "\n"}, "must be one character"),
        ({"delimiter": "ü"}, "must be one character"),
        ({"quote": ","}, "is the same as delimiter"),
        ({"escape": '"'}, "is the same as quote"),
    ],
)
def test_characters_that_can_not_be(options: dict[str, Any], message: str) -> None:
    """Each special character has one meaning. A setting without effect is refused."""
    with pytest.raises(ValidationError, match=message):
        CsvSection.model_validate({"schema": "a.b:C", **options})


def test_tombstones_and_empty_messages() -> None:
    """A tombstone is a dead letter or is counted. An empty message is a line of one empty field."""
    for on_null, letters, dropped in (
        ("dead", [(0, "value", "tombstone"), (1, "schema", "field_count")], 0),
        ("drop", [(1, "schema", "field_count")], 1),
    ):
        decoded = RowDecoder(
            ModelReference("models.py:Order", HERE), CsvEncoding(), on_null=on_null
        ).open()(messages_with([None, b""]))  # type: ignore[arg-type]
        assert (dead(decoded), decoded.dropped) == (letters, dropped)


def test_a_schema_that_is_no_line() -> None:
    """Lists, structs, maps and bytes are refused by name before anything is read."""
    decoder = RowDecoder(ModelReference("models.py:Deep", HERE), CsvEncoding())
    for ask in (lambda: decoder.columns, decoder.open):
        with pytest.raises(SpecError, match=r"tags is list<item: string>, body is binary"):
            ask()
