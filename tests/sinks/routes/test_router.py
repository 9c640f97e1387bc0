"""The router: it sends a row to the same table as the rules applied row by row, for columns,
headers and topics.
"""

from __future__ import annotations

import pickle
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.errors import SpecError
from windrow.ingest.model.plan import Split
from windrow.ingest.schema.messages import HEADERS
from windrow.ingest.sinks.routes.stage import Router, Rule, parts_by_table
from windrow.ingest.testing.contracts.windows import messages

RULES = (Rule(values=("de", "at")), Rule(pattern="u[ks]|d."), Rule(values=("", "true", "7")))
VALUES = st.none() | st.sampled_from(
    ["de", "at", "dk", "uk", "us", "use", "", "true", "7", "ü", "de\n"]
)


def find_rule(value: str | None) -> int:
    """Returns the index of the first rule that takes the value."""
    if value is None:
        return len(RULES)
    matching_rules = (
        i
        for i, r in enumerate(RULES)
        if (value in r.values if r.pattern is None else re.fullmatch(r.pattern, value))
    )
    return next(matching_rules, len(RULES))


def rows(values: list[str | None]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Returns a batch with one column of the values, and as many messages."""
    return pa.record_batch([pa.array(values, pa.string())], ["country"]), messages(
        Split("shop.orders", 0, 0, len(values))
    )


def make_messages(lists: list[list[tuple[str, bytes | None]]]) -> pa.RecordBatch:
    """Returns messages with these headers."""
    header_messages = messages(Split("shop.orders", 0, 0, len(lists)))
    entries = pa.array([[{"key": k, "value": v} for k, v in headers] for headers in lists], HEADERS)
    return header_messages.set_column(
        header_messages.schema.get_field_index("headers"), "headers", entries
    )


@given(st.lists(VALUES, min_size=1, max_size=20))
def test_by_a_column(values: list[str | None]) -> None:
    """The first rule that takes a row's value decides.

    Null, and a value without a rule, go to the last table.
    """
    assert Router("column", "country", RULES).rules_of(*rows(values)).tolist() == [
        find_rule(v) for v in values
    ]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["country", "c"]), VALUES), max_size=4),
        min_size=1,
        max_size=12,
    )
)
def test_by_a_header(lists: list[list[tuple[str, str | None]]]) -> None:
    """The bytes of the last header with the name decide.

    A message without it goes to the last table.
    """
    header_messages = make_messages(
        [[(key, None if v is None else v.encode()) for key, v in headers] for headers in lists]
    )
    last = [dict(headers).get("country") for headers in lists]
    assert Router("header", "country", RULES).rules_of(
        rows([None] * len(lists))[0], header_messages
    ).tolist() == [find_rule(v) for v in last]


def test_a_header_that_is_no_text() -> None:
    """A header that isn't UTF-8 matches no rule, and raises no error."""
    header_messages = make_messages([[("country", b"\xff\xfe")], [("country", b"de")]])
    assert Router("header", "country", RULES).rules_of(
        rows([None, None])[0], header_messages
    ).tolist() == [
        3,
        0,
    ]


@pytest.mark.parametrize(
    ("values", "kind"), [([7, 8, None], pa.int64()), ([True, False, None], pa.bool_())]
)
def test_by_other_types(values: list[object], kind: pa.DataType) -> None:
    """Integers and booleans are matched by their text."""
    batch = pa.record_batch([pa.array(values, kind)], ["country"])
    assert Router("column", "country", RULES).rules_of(batch, rows([None] * 3)[1]).tolist() == [
        2,
        3,
        3,
    ]


def test_by_topic() -> None:
    """With a pattern of topics, each topic may have a table."""
    rules = Router("topic", "", (Rule(pattern=r"shop\.o.*"),)).rules_of(*rows(["x", "y"]))
    assert rules.tolist() == [0, 0]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_rows_stay_beside_their_messages(places: list[int]) -> None:
    """Each table's rows keep their order and their messages, and none is lost or doubled."""
    table_rows, row_messages = rows([str(i) for i in range(len(places))])
    parts = parts_by_table(np.array(places), table_rows, row_messages)
    assert all(
        part["country"].to_pylist() == [str(o) for o in part_messages["offset"].to_pylist()]
        for _, part, part_messages in parts
    )
    assert {table_number: part["country"].to_pylist() for table_number, part, _ in parts} == {
        table_number: [str(i) for i, p in enumerate(places) if p == table_number]
        for table_number in set(places)
    }


@pytest.mark.parametrize(
    ("router", "says"),
    [
        (
            Router("column", "land", RULES),
            "sink.name is land, and no row has such a column. Name one of country, at",
        ),
        (Router("column", "at", RULES), r"sink.name is at, which is timestamp\[us\]"),
    ],
)
def test_a_column_that_leads_nowhere(router: Router, says: str) -> None:
    """A column that is missing, or has a type without names, is refused before anything is read."""
    with pytest.raises(SpecError, match=says):
        router.check_columns(pa.schema([("country", pa.string()), ("at", pa.timestamp("us"))]))


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "a)|(b", "[", r"\Qa", "a{1001}"])
def test_a_pattern_that_re2_does_not_read(pattern: str) -> None:
    """A pattern that RE2 can't read is known before the first message, also one that is valid
    only within other parentheses.
    """
    assert not Rule(pattern=pattern).is_readable()


def test_a_pattern_that_only_re2_reads() -> None:
    """Classes of Unicode match as RE2 reads them."""
    router = Router("column", "country", (Rule(pattern=r"\p{Lu}.*"),))
    assert router.rules[0].is_readable()
    assert router.rules_of(*rows(["Ärzte", "ärzte", "De", None])).tolist() == [0, 1, 0, 1]


def test_it_travels() -> None:
    """A router can be pickled for the tasks."""
    router = Router("column", "country", RULES)
    assert pickle.loads(pickle.dumps(router)) == router
