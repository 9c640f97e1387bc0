"""`infer` prints what a person must know about the pipeline before its first run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.infer.test_every_value import Pair, run
from tests.infer.test_recognise import messages, propose_for, request_with
from windrow.ingest.errors import SpecError
from windrow.ingest.infer.new_pipeline import _notes


def _values(*documents: Any) -> list[Pair]:
    return [(None, json.dumps(document).encode()) for document in documents]


NOTED: dict[str, tuple[Sequence[Pair], str]] = {
    "null": (_values(*[{"id": 1, "a": None}] * 3), "column 'a': only null was sampled"),
    "empty": (_values(*[{"id": 1, "xs": []}] * 3), "column 'xs': only empty lists were sampled"),
    "below": (
        _values(*[{"o": {"id": 1, "a": None}}] * 3),
        "column 'o': 'a': only null was sampled",
    ),
    "milliseconds": (_values({"at": 1767603600123}, {"at": 1767603601123}), '"epoch": "ms"'),
    "seconds": (_values({"at": 1767603600}, {"at": 1767603601}), '"epoch": "s"'),
    "no offset": (
        _values({"at": "2026-01-05T09:00:00"}, {"at": "2026-01-05 09:00:00.123"}),
        '"zone": "UTC"',
    ),
    "__source_ts_ms": (_values({"id": 1, "__source_ts_ms": 1}), "ExtractNewRecordState"),
    "__deleted": (_values({"id": 1, "__deleted": "false"}), "ExtractNewRecordState"),
    "tombstones": ([(b'{"id": 1}', b'{"id": 1}'), (b'{"id": 1}', None)], "ExtractNewRecordState"),
}


@pytest.mark.parametrize("name", NOTED)
def test_notes(name: str) -> None:
    """Each finding is one note of the command."""
    pairs, words = NOTED[name]
    assert len([note for note in run(pairs).inferred.notes if words in note]) == 1


@pytest.mark.parametrize(
    "documents",
    [
        [{"id": 12345, "n": 10**9 * 7}],
        [{"id": 1}, {"id": 1767603600}],
        [{"day": "2026-01-05"}],
        [{"s": "2026-01-05T09:00:00Z"}],
    ],
)
def test_nothing_is_noted_of_what_is_plain(documents: list[Any]) -> None:
    """Ordinary values cause no note.

    These are numbers that can't be recent times, dates, and times with an offset.
    """
    assert run(_values(*documents)).inferred.notes == ()


def test_headers_are_named() -> None:
    """A note names the headers, because no column holds them."""
    sample = messages([(None, b'{"id": 1}')], [("ce_id", b"1"), ("ce_type", b"x")])
    notes = list(_notes(propose_for({"id": 1}), request_with(), sample))
    assert notes == [
        "the headers 'ce_id', 'ce_type' are in no column: decode.headers makes columns of them"
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b'\xef\xbb\xbf{"a": 1}', "beginning with a byte-order mark, which JSON doesn't have: 3"),
        (b"[1, {}]", "JSON arrays, and a row needs an object: 3"),
        (
            b'{"a": 1} {"a": 2}',
            "beginning as JSON objects, .*: 3",
        ),
        (b'"order 7"', "texts inside JSON, as Connect's JsonConverter writes them"),
        (b"\x03\x00" + bytes(16) + b"\x02", "most with glue-00000000-.*AWS Glue with its region"),
        (b"hello", "the format of the others is unknown"),
    ],
)
def test_what_is_no_json_object_is_named(value: bytes, words: str) -> None:
    """The error about a value that is no JSON object names the format that its first bytes show."""
    with pytest.raises(SpecError, match=words):
        propose_for(*[value] * 3)


def test_a_value_without_a_usable_field_is_refused() -> None:
    """A value without a usable field is refused, even if the key has one."""
    with pytest.raises(SpecError, match="No field of topic t can be a column: 'a b': Spark"):
        run([(b'{"kid": 1}', b'{"a b": 1}')])


def test_keys_that_are_data_with_values_of_several_kinds() -> None:
    """Maps with mixed values keep keys that come later."""
    mixed = [{"id": i, "p": {f"k{i}": i, f"m{i}": "t"}} for i in range(6)]
    done = run(_values(*mixed), 5)
    assert done.lost(mixed) == set()


LINES = {
    "a writer of CSV": (
        [b'"0"\t"say ""x"""', b'"1"\t"y"'],
        [{"id": 0, "t": 'say "x"'}, {"id": 1, "t": "y"}],
    ),
    "quotes of texts": ([b'0\t"x"', b'1\t"y"'], [{"id": 0, "t": '"x"'}, {"id": 1, "t": '"y"'}]),
    "MySQL": ([b"0\ta\\tb", b"1\t\\N"], [{"id": 0, "t": "a\tb"}, {"id": 1, "t": None}]),
}


@pytest.mark.parametrize("name", LINES)
def test_lines_with_tabs(name: str) -> None:
    """Lines with tabs are read as their writers meant them."""
    values, rows = LINES[name]
    done = run([(None, value) for value in values], format="csv", columns=("id", "t"))
    assert [row for message_rows in done.rows for row in message_rows or ()] == rows


def test_watermarks_of_ticdc() -> None:
    """TiCDC's watermarks make no rows and are only counted, whatever table they name."""
    row = {
        "id": 0,
        "database": "test",
        "table": "t",
        "pkNames": ["id"],
        "isDdl": False,
        "type": "INSERT",
        "es": 1,
        "ts": 2,
        "mysqlType": {"id": "int"},
        "old": None,
        "data": [{"id": "1"}],
    }
    mark = {
        **row,
        "database": "",
        "table": "",
        "pkNames": None,
        "type": "TIDB_WATERMARK",
        "mysqlType": None,
        "data": None,
    }
    done = run(_values(row, mark, row, mark))
    assert (done.format, done.inferred.refused, done.rows) == (
        "canal-json",
        (),
        [[{"id": 1}], [], [{"id": 1}], []],
    )
