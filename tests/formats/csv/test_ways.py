"""The fast pass takes only lines that the strict decoder takes, with identical rows.

This holds for columns of every type and for any dialect.
"""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.csv.models import Every, Order
from tests.profiles import examples
from windrow.ingest.formats.csv.decoder import CsvPass, csv_batch_decoder
from windrow.ingest.formats.csv.lines import Dialect
from windrow.ingest.formats.csv.strict import StrictLine
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.schema.columns import Columns

DIALECTS = [
    Dialect(null_literal=""),
    Dialect(),
    Dialect("\t", None, null_literal="null"),
    Dialect(";", "'", "\\", "\\N"),
]
READINGS = [
    Reading(form) for form in ("iso-8601", "sql", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns")
]
COLUMNS = Columns.of(Every)

NUMBERS = [
    "0",
    "-0",
    "1",
    "-7",
    "12",
    "127",
    "128",
    "-128",
    "-129",
    "123456789012345678",
    "9223372036854775807",
    "9223372036854775808",
    "01",
    "+1",
    "0.5",
    "-0.0",
    "1.10",
    "2.005",
    "1e2",
    "1E-5",
    "1e39",
    "3.5e38",
    "1e400",
    "16777217",
    "9007199254740993",
    "9999999.99",
    ".5",
    "1.",
    "1,0",
    "0.1234567890123456789",
    "1.7976931348623157e308",
    "5e-324",
    "nan",
    "inf",
    "1_0",
    " 1",
    "10000000",
    "9" * 30 + ".5",
]
DAYS = [
    "2026-01-05",
    "2024-02-29",
    "2026-02-29",
    "2026-04-31",
    "2026-12-31",
    "0001-01-01",
    "9999-12-31",
    "0000-01-01",
    "2026-1-5",
    "20260105",
    "2026-13-01",
]
CLOCKS = [
    "09:00:00",
    "23:59:59.999999",
    "24:00:00",
    "09:00:60",
    "09:00:00.1234567",
    "09:00:00.100000000",
    "09:00",
    "9:00:00",
    "00:00:00.5",
]
OFFSETS = ["Z", "z", "", "+01:00", "-23:59", "+24:00", "+0100", "-05", " Z", "+01:60"]
EPOCHS = [
    "0",
    "1767603600",
    "-62135596800",
    "-7",
    "01",
    "1.0",
    "-1.0000005",
    "1e3",
    *("9" * n for n in (11, 12, 14, 15, 17, 18, 19)),
]
ODD = [
    "",
    "null",
    "\\N",
    '"',
    "'",
    "a",
    "\ufeff",
    "ü",
    '"x"',
    "'x'",
    "\n",
    "\r\n",
    "True",
    "\\",
    "x,y",
    "\x00",
]
SWITCHES = ["true", "false", "True", "1"]
TEXTS = {"fine": SWITCHES, "text": ["a", "ü€", "x y", "1"], "day": DAYS}
"""The texts of these columns. Timestamps are composed; all other columns are numbers."""
PLAIN = {"iso-8601": "2026-01-05T09:00:00.25-01:30", "sql": "2026-01-05 09:00:00.25"}


def field(r: random.Random, name: str, form: str) -> str:
    """Returns a field. Its column usually accepts it."""
    kind = r.random()
    if kind < 0.02:
        return r.choice(ODD)
    if name in {"at", "ms"}:
        instant = PLAIN.get(form, "17") if name == "at" else "1767603600000"
        text = f"{r.choice(DAYS)}{r.choice('TTt ')}{r.choice(CLOCKS)}{r.choice(OFFSETS)}"
        return instant if kind < 0.9 else r.choice([text, *EPOCHS])
    if name in TEXTS:
        return r.choice(TEXTS[name][:2] if kind < 0.9 else TEXTS[name])
    return r.choice(["1", "12", "-7"] if kind < 0.9 else NUMBERS)


def strictly(
    lines: list[bytes | None], dialect: Dialect, reading: Reading, columns: Columns = COLUMNS
) -> list[list[Any] | None]:
    """Returns each line's values by the strict decoder, as Arrow returns them; None: refused."""
    strict, rows = StrictLine(columns, dialect, reading), []
    for line in lines:
        try:
            values = strict.decode(line) if line is not None else None
        except RefusedValueError:
            values = None
        rows.append(
            values
            and [
                pa.array([v], f.type)[0].as_py()
                for v, f in zip(values, columns.arrow_schema, strict=True)
            ]
        )
    return rows


def same(first: Any, second: Any) -> bool:
    """Returns whether two values are identical; 0.0 and -0.0 differ."""
    return repr(first) == repr(second)


def check_promise(lines: list[bytes | None], dialect: Dialect, reading: Reading) -> tuple[int, int]:
    """Checks that the fast pass and the whole decoder agree with the strict decoder.

    Returns:
        The number of lines that the fast pass took, and the number of rows.
    """
    truth = strictly(lines, dialect, reading)
    fast_rows = CsvPass(COLUMNS, dialect, reading).decode(pa.array(lines, pa.binary()))
    fast_values = [
        list(values) for values in zip(*(c.to_pylist() for c in fast_rows.columns), strict=True)
    ]
    assert same(fast_values, [truth[i] for i in np.flatnonzero(fast_rows.mask)])
    decoded = csv_batch_decoder(COLUMNS, dialect, reading).decode(
        pa.array(lines, pa.binary()), "dead"
    )
    assert same(
        [[*row.values()] for row in decoded.rows.to_pylist()],
        [row for row in truth if row is not None],
    )
    assert decoded.row_index.to_pylist() == [i for i, row in enumerate(truth) if row is not None]
    return len(fast_values), len(decoded.row_index)


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading.timestamps)
@pytest.mark.parametrize("dialect", DIALECTS, ids=repr)
def test_what_is_taken_is_what_the_strict_way_takes(
    dialect: Dialect, reading: Reading, dice: random.Random
) -> None:
    """Each line of the fast pass is the strict decoder's row.

    The whole decoder gives the strict decoder's verdicts.
    """
    count = examples(2_000)
    taken_count, rows = check_promise(
        [line(dice, dialect, reading.timestamps) for _ in range(count)], dialect, reading
    )
    assert taken_count > count / 10, "too few lines are taken to show anything"
    assert rows > taken_count or count < 2_000, "no line is left to the strict way"


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading.timestamps)
def test_every_odd_field_in_every_column(reading: Reading) -> None:
    """Each odd field is tried in each column, with plain values in all other columns."""
    names = [column.name for column in COLUMNS.columns]
    instant = PLAIN.get(reading.timestamps, "17")
    plain = {
        **dict.fromkeys(names, "1"),
        "text": "a",
        "at": instant,
        "ms": "17",
        "day": "2026-01-05",
        "fine": "true",
    }
    instants = [
        f"{day}{t}{clock}{offset}"
        for day in DAYS
        for t in "Tt "
        for clock in CLOCKS
        for offset in OFFSETS
    ]
    fields = [*NUMBERS, *DAYS, *EPOCHS, *(odd for odd in ODD if "," not in odd), *SWITCHES]
    lines: list[bytes | None] = [
        ",".join({**plain, name: odd}.values()).encode()
        for name in names
        for odd in (fields + instants if name == "at" else fields)
    ]
    assert check_promise(lines, Dialect(), reading)[0] > 100


def line(r: random.Random, dialect: Dialect, form: str) -> bytes | None:
    """Returns a line, which is usually a row; None: a tombstone."""
    fields = [field(r, column.name, form) for column in COLUMNS.columns]
    if r.random() < 0.03:
        fields = fields[1:] if r.random() < 0.5 else [*fields, "1"]
    text = dialect.delimiter.join(fields) + r.choice([""] * 8 + ["\n", "\r\n", "\n\n"])
    return (
        None
        if r.random() < 0.01
        else text.encode()
        if r.random() < 0.98
        else text.encode()[:-1] + b"\xff"
    )


GOOD = {
    "whole": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(-128, 127),
    "share": st.floats(allow_nan=False, allow_infinity=False),
    "single": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "text": st.text(max_size=8),
    "price": st.decimals(-9_999_999, 9_999_999, places=2),
    "huge": st.decimals(-(10**20), 10**20, places=4),
    "at": st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=st.just(dt.UTC)),  # noqa: DTZ001
    "ms": (
        st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=st.just(dt.UTC)).map(  # noqa: DTZ001
            lambda t: t.replace(microsecond=0)
        )
    ),
    "day": st.dates(),
    "fine": st.booleans(),
}


def written(name: str, value: Any) -> str:
    """Returns the text of a field. Strings are in quotes."""
    if value is None:
        return ""
    text = (
        str(value).lower()
        if name == "fine"
        else repr(value)
        if name in {"share", "single"}
        else str(value)
    )
    if name == "at":
        text = value.isoformat().replace("+00:00", "Z")
    if name == "ms":
        text = str((value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1))
    return text if name != "text" else '"' + text.replace('"', '""') + '"'


@settings(max_examples=examples(300))
@given(
    rows=st.lists(
        st.fixed_dictionaries({name: st.none() | values for name, values in GOOD.items()}),
        max_size=5,
    )
)
def test_what_is_written_is_read(rows: list[dict[str, Any]]) -> None:
    """Values of every type, and nulls, survive writing and reading."""
    lines = [
        ",".join(written(c.name, row[c.name]) for c in COLUMNS.columns).encode() for row in rows
    ]
    decoded = csv_batch_decoder(COLUMNS, Dialect(null_literal="")).decode(
        pa.array(lines, pa.binary()), "dead"
    )
    assert decoded.dead_detail.to_pylist() == []
    for read_row, row in zip(decoded.rows.to_pylist(), rows, strict=True):
        assert {name: value for name, value in read_row.items() if name != "single"} == {
            n: v for n, v in row.items() if n != "single"
        }


def test_most_lines_go_the_fast_way() -> None:
    """The fast pass takes ordinary lines, with quotes and line ends.

    It leaves odd numbers and broken lines to the strict decoder.
    """
    lines = [
        b"1,a,2.50,x",
        b"2,b,0,",
        b"-3,c,-1.5,\n",
        b"4,d,1,x\r\n",
        "5,ü,1,x".encode(),
        b'6,"a",2,x',
        b'7,"a""b,""",2,"x\n"\n',
    ]
    slow = [
        b'1,"a"b,2,x',
        b'1,"a,2,x',
        b"1,a,1e2,x",
        b"1,a\xff,2,x",
        b"1,a,2",
        b"\xef\xbb\xbf1,a,2,x",
        b"1,a,2,x\n\n",
    ]
    fast_rows = CsvPass(Columns.of(Order), Dialect(), Reading()).decode(
        pa.array([*lines, *slow, None], pa.binary())
    )
    assert fast_rows.mask.tolist() == [True] * len(lines) + [False] * (len(slow) + 1)
    assert fast_rows.columns[1].to_pylist()[-1] == 'a"b,"'


def test_a_part_of_a_batch_is_judged_as_the_whole() -> None:
    """The fast pass gives the same values for a slice of a batch as for the whole batch."""
    lines = pa.array([b"1,a,2,x", b"2,b,3,y", None, b"3,c,4,z"], pa.binary())
    pass_ = CsvPass(Columns.of(Order), Dialect(), Reading())
    assert [c.to_pylist() for c in pass_.decode(lines.slice(1)).columns] == [
        c.to_pylist()[1:] for c in pass_.decode(lines).columns
    ]
