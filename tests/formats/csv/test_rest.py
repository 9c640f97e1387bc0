"""Rows keep the fields behind the columns of a line (`unknown: keep`)."""

from __future__ import annotations

import csv
import json
import random

import pyarrow as pa
import pytest

from windrow.ingest.formats.csv.decoder import csv_batch_decoder
from windrow.ingest.formats.csv.lines import COMMAS, Dialect
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.columns import REST, Column, Columns

NULLS = Dialect(";", "'", "\\", "-")
TEXTS = ("", "a", "1.50", '"', "a,b", "größe", "x\ny", "-", "\x00", " ")


def decoded(*lines: bytes, count: int = 2, dialect: Dialect = COMMAS) -> Decoded:
    """Returns the verdict on lines, for so many texts as columns."""
    texts = Columns(tuple(Column(f"c{n}", pa.string(), nullable=True) for n in range(count)))
    decoder = csv_batch_decoder(texts.with_rest(), dialect, Reading(unknown="keep"))
    return decoder.decode(pa.array(lines, pa.binary()), "dead")


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        (b"a;b", None),
        (b"a;b;", '{"3":""}'),
        (b"a;b;1.50;'-';-;\\-\n", '{"3":"1.50","4":"-","5":null,"6":"-"}'),
        ("a;b;größe;'x;y';\\t\n".encode(), '{"3":"größe","4":"x;y","5":"\\t"}'),
    ],
)
def test_fields_behind_the_columns_are_kept_by_their_place(line: bytes, rest: str | None) -> None:
    """The first field of a line is 1, each value is a text, and null is what the spec says."""
    verdict = decoded(line, dialect=NULLS)
    assert not len(verdict.dead_index), verdict.dead_detail
    assert verdict.rows.column(REST).to_pylist() == [rest]
    numbers = [(*told.fields(0),) for told in verdict.ignored]
    assert numbers == ([] if rest is None else [(*json.loads(rest),)])


def test_other_lines_are_refused_as_ever() -> None:
    """Too few fields, a broken field behind the columns, and a large text make dead letters."""
    fits = b"a,b," + b"x" * ((1 << 20) - 8)
    verdict = decoded(b"a", b'a,b,"x', b"a,b,\xff", fits, fits + b"x", b"a,b" + b"," * 200_000)
    assert verdict.row_index.to_pylist() == [3]
    reasons = ["field_count", "not_csv", "invalid_utf8", "too_large", "too_large"]
    assert verdict.dead_reason.to_pylist() == reasons


@pytest.mark.sampled(2, of=50)
def test_row_and_text_hold_what_the_standard_library_reads(part: int, dice: random.Random) -> None:
    """Columns and text together have each field of a line, as Python's csv reads it."""
    lines = []
    for _ in range(200):
        fields = [dice.choice(TEXTS) for _ in range(dice.randrange(2, 9))]
        quoted = (f'"{field.replace(chr(34), chr(34) * 2)}"' for field in fields)
        whole = [
            text if {'"', ",", "\n"} & {*field} or dice.random() < 0.3 else field
            for field, text in zip(fields, quoted, strict=True)
        ]
        lines.append(",".join(whole))
    verdict = decoded(*(line.encode() for line in lines))
    assert verdict.rows.num_rows == len(lines)
    for line, row in zip(lines, verdict.rows.to_pylist(), strict=True):
        (fields,) = csv.reader([line], strict=True)
        behind = {str(n): field for n, field in enumerate(fields[2:], 3)}
        assert [row["c0"], row["c1"]] == fields[:2]
        assert json.loads(row[REST] or "{}") == behind
