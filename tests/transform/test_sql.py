"""The `sql` step: one SELECT over rows. The result for a row depends on this row alone."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.transform.small_verdicts import columns_of, decoded
from windrow.ingest.errors import BugError, SpecError
from windrow.ingest.ports.decoder import Deletes
from windrow.ingest.ports.transform import Transform
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.dtypes import TIMESTAMP
from windrow.ingest.testing.contracts.transform import Before, TransformContract, apply
from windrow.ingest.testing.contracts.values import dead
from windrow.ingest.transform.chain import columns_after
from windrow.ingest.transform.kind import StepContext
from windrow.ingest.transform.sql import step
from windrow.ingest.transform.sql.kind import SqlSection
from windrow.ingest.transform.sql.step import Sql

ORDERS = Columns(
    (
        Column("id", pa.int64(), nullable=False),
        Column("lines", pa.list_(pa.int64()), nullable=True),
        Column("text", pa.string(), nullable=True),
    )
)


@pytest.fixture
def input_rows() -> Before:
    """Rows of orders: two of one message, one of each other message. One text is no number."""
    rows = [
        pa.array([1, 2, 3, 4, 5], pa.int64()),
        pa.array([[1, 2], [], None, [3], [4]], pa.list_(pa.int64())),
        pa.array(["1", "x", "3", "4", None]),
    ]
    batch = pa.RecordBatch.from_arrays(rows, schema=ORDERS.arrow_schema)
    return Before(ORDERS, batch, (0, 0, 1, 2, 3))


class TestColumns(TransformContract):
    """Computed columns, and a filter."""

    @pytest.fixture
    def transform(self) -> Transform:
        return Sql("SELECT id * 2 AS twice, upper(text) AS text FROM rows WHERE id <> 3")


class TestUnnest(TransformContract):
    """Several rows for a row."""

    @pytest.fixture
    def transform(self) -> Transform:
        return Sql("SELECT id, unnest(lines) AS line FROM rows")


class TestStar(TransformContract):
    """All columns but one, and a filter."""

    @pytest.fixture
    def transform(self) -> Transform:
        return Sql("SELECT * EXCLUDE (lines) RENAME (text AS words) FROM rows WHERE id <> 5")


class TestPoison(TransformContract):
    """An expression that fails for some rows."""

    @pytest.fixture
    def transform(self) -> Transform:
        return Sql("SELECT id, CAST(text AS BIGINT) AS number FROM rows")


class TestMetadata(TransformContract):
    """A metadata column is read, and isn't in the result."""

    @pytest.fixture
    def transform(self) -> Transform:
        metadata = (("topic", "_topic"), ("offset", "_offset"))
        query = "SELECT *, _topic || id AS place FROM rows WHERE _offset <> 3"
        return Sql(query, metadata=metadata)


def selected(query: str, rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Returns the rows of a SELECT, and asserts their types and that no row fails."""
    sql = Sql(query)
    output = apply(sql, decoded(rows))
    assert output.rows.schema.equals(sql.columns(columns_of(rows)).arrow_schema)
    assert not len(output.dead_index)
    listed: list[dict[str, Any]] = output.rows.to_pylist()
    return listed


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT sum(id) AS s FROM rows", "sum adds other rows up: a spark step"),
        ("SELECT DISTINCT id FROM rows", "DISTINCT looks at other rows"),
        ("SELECT id FROM rows LIMIT 1", "LIMIT counts other rows"),
        ("SELECT id FROM rows ORDER BY id", "ORDER BY: rows keep the order of the log"),
        ("SELECT now() AS n FROM rows", "now depends on more than its arguments"),
        ("SELECT year(age(_timestamp)) AS y FROM rows", "age depends on more than its arguments"),
        ("SELECT random() AS n FROM rows", "random depends on more than its arguments"),
        ("SELECT current_date AS d FROM rows", "there is no column current_date, there are id"),
        ("SELECT id FROM rows UNION SELECT id FROM rows", "UNION and its like bring other rows"),
        ("SELECT row_number() OVER () AS n FROM rows", "a window function looks at other rows"),
        ("SELECT (SELECT 1) AS n FROM rows", "a subquery looks at other rows"),
        ("SELECT id FROM rows WHERE id IN (SELECT id FROM rows)", "a subquery looks at"),
        ("CREATE TABLE t(i INT)", "it is no SELECT"),
        ("SELECT id FROM rows; SELECT id FROM rows", "several statements: each is a step"),
        ("SELECT id FROM rows JOIN rows r USING (id)", "it must be FROM rows, alone"),
        ("SELECT id FROM rows TABLESAMPLE 10%", "it must be FROM rows, alone"),
        ("SELECT * FROM read_csv('/etc/passwd')", "it must be FROM rows, alone"),
        ("WITH r AS (SELECT * FROM rows) SELECT id FROM rows", "WITH: write what it says"),
        ("SELECT id FROM rows GROUP BY id", "GROUP BY, HAVING and QUALIFY look at other rows"),
        ("SELECT id FROM rows GROUP BY ALL", "GROUP BY, HAVING and QUALIFY look at other rows"),
        ("SELECT id + 1 FROM rows", "(id + 1) has no name: write (id + 1) AS name"),
        ("SELECT id, id FROM rows", "'id' comes twice"),
        ("SELECT id, text AS ID FROM rows", "'id' and 'ID' differ by case only"),
        ("SELECT prize FROM rows", "there is no column prize, there are id, lines, text"),
        (
            'SELECT id FROM rows WHERE text = "EUR"',
            "there is no column EUR: a text is 'EUR', in single quotes, there are id, lines, text",
        ),
        ("SELECT * EXCLUDE (prize) FROM rows", "the star has no column prize"),
        ("SELECT COLUMNS('i.*') FROM rows", "COLUMNS(...) and a struct's star: name the columns"),
        ("SELECT unnest(lines) + 1 AS n FROM rows", "unnest stands alone as a column"),
        ("SELECT unnest(id) AS n FROM rows", "sql can't be used: "),
        ("SELECT #1 AS n FROM rows", "#1 names no column: write its name"),
        ("SELECT $1 AS n FROM rows", "no setting gives values for parameters"),
        ("SELECT id FROM rows WHERE lower(id)", "sql can't be used: Binder Error"),
        ("SELECT 1 AS n", "it must be FROM rows, alone"),
        ("SELECT id FRM rows", "syntax error"),
        ("SELECT epoch_ms(id) AS t FROM rows", "t is TIMESTAMP: it has no zone: CAST a text AS"),
        (
            "SELECT current_localtimestamp() AS n FROM rows",
            "current_localtimestamp depends on more",
        ),
        ("SELECT current_localtime()::VARCHAR AS n FROM rows", "current_localtime depends on more"),
        ("SELECT user() AS n FROM rows", "user depends on more than its arguments"),
        ("SELECT hash(id) AS h FROM rows", "h is UBIGINT: no table has unsigned integers"),
        ("SELECT NULL AS n FROM rows", 'n is "NULL": it has no type: write CAST(NULL AS ...)'),
        ("SELECT TIME '10:00' AS t FROM rows", "no table has this type: CAST it AS VARCHAR"),
        ("SELECT id::HUGEINT AS n FROM rows", "n is HUGEINT: CAST it AS DECIMAL(38, 0)"),
        ("SELECT '101'::BIT AS n FROM rows", "n is BIT: no table has this type"),
        ("SELECT {} AS n FROM rows", "n is STRUCT: no table has this type"),
        ("SELECT id FROM rows WHERE text", "WHERE is VARCHAR, and no condition"),
        ("SELECT text.upper() AS t FROM rows", "text.upper(): write upper(text)"),
        ("SELECT * EXCLUDE (rows.text) FROM rows", "EXCLUDE and RENAME take the columns' names"),
        ("SELECT * RENAME (x.text AS t) FROM rows", "EXCLUDE and RENAME take the columns' names"),
        ("SELECT unlist(lines) + 1 AS n FROM rows", "unnest stands alone as a column"),
        ("SELECT generate_subscripts(lines, 1) AS n FROM rows", "depends on more than its arg"),
        ("SELECT ago(INTERVAL 1 DAY) AS t FROM rows", "depends on more than its arguments"),
        ("SELECT geomean(id) AS n FROM rows", "depends on more than its arguments"),
        ("SELECT '{'->>'$.a' IN ('b', text) AS f FROM rows", "Invalid Input Error: Malformed JSON"),
        ("-- nothing", "it is empty"),
        (f"SELECT {' || '.join(['text'] * 600)} AS t FROM rows", "it is nested too deeply"),
        (
            "SELECT list_transform(lines, lambda ID: id + 1) AS l FROM rows",
            "the parameter id of a lambda has the name of a column: call it otherwise",
        ),
        ("SELECT [text for text in lines] AS l FROM rows", "the parameter text of a lambda has"),
        ("SELECT list_filter(lines, lambda rows: true) AS l FROM rows", "the name of the rows"),
        ("SELECT {'a': id, 'A': id} AS s FROM rows", 'Duplicate named argument "A"'),
    ],
)
def test_what_is_no_step_is_refused(query: str, message: str) -> None:
    """A SELECT that can't be a step raises SpecError with the way out, before anything is read.

    It reads other rows, isn't repeatable, or has a column without a name or a type.
    """
    with pytest.raises(SpecError) as refused:
        columns_after(Sql(query), ORDERS)
    assert message in str(refused.value)
    assert "Nothing was read." in refused.value.advice


def test_metadata_columns_have_names_of_their_own() -> None:
    """A name that differs from a metadata column's by case only is refused.

    This holds for columns and for parameters of lambdas, because DuckDB would confuse them.
    """
    metadata = (("topic", "_topic"),)
    lambdas = Sql("SELECT list_reduce(lines, lambda a, _topic: a) AS l FROM rows", "sql", metadata)
    rows = Columns((*ORDERS.columns, Column("_Topic", pa.string(), nullable=True)))
    with pytest.raises(SpecError, match="column _Topic and the metadata column _topic differ by"):
        Sql("SELECT _topic AS t FROM rows", metadata=metadata).columns(rows)
    with pytest.raises(
        SpecError, match="the parameter _topic of a lambda has the name of a column"
    ):
        lambdas.columns(ORDERS)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT at + 1 AS x FROM rows", '"at" is a word of SQL, and as a column stands in double'),
        ("SELECT * EXCLUDE (Order) FROM rows", '"order" is a word of SQL'),
        ("SELECT upper(_end) AS x, end FROM rows", '"end" is a word of SQL'),
        ("SELECT id,\n 'ä' AS a,\n at::TIMESTAMPTZ AS t FROM rows", '(line 3): "at" is a word'),
        ("SELECT id\nFRM rows", 'syntax error at or near "rows" (line 2). '),
        ("SELECT id,\n  prize\nFROM rows", "there is no column prize (line 2)"),
        ("SELECT id,\n\n  now() AS n\nFROM rows", "a replay must give the same rows (line 3)"),
        ("SELECT id\nFROM rows\nWHERE upper(id, 1) = 'a'", " - in WHERE (line 3). "),
        ("SELECT id, \n id * 2 AS n,\n lower(id, 2) AS b\nFROM rows", " - in b (line 3). "),
        ("SELECT id, lower(id, 2) AS b FROM rows", " - in b. "),
    ],
)
def test_a_mistake_has_its_line(query: str, message: str) -> None:
    """The error of a SELECT has its line, and the column of an expression that DuckDB refuses.

    A column whose name is a word of SQL needs double quotes, and the error says so.
    """
    names = ("at", "order", "end", "_end")
    more = (Column(name, pa.int64(), nullable=True) for name in names)
    with pytest.raises(SpecError) as refused:
        Sql(query).columns(Columns((*ORDERS.columns, *more)))
    assert message in str(refused.value).replace(", there are", " there are").replace(
        " there are id, lines, text, at, order, end, _end", ""
    )


def test_values_come_back_as_they_went_in() -> None:
    """Columns that are passed on or renamed are unchanged, and computed values are exact."""
    rows = pa.record_batch(
        {
            "d": pa.array([Decimal("1.20"), None], pa.decimal128(38, 2)),
            "at": pa.array([1, None], TIMESTAMP),
            "day": pa.array([dt.date(1, 1, 1), None]),
            "l": pa.array([[1, None], None], pa.list_(pa.int32())),
            "s": pa.array([{"a": [{"b": b"\xff"}]}, None]),
            "m": pa.array([[("k", 1), ("k", 2)], None], pa.map_(pa.string(), pa.int64())),
            "f": pa.array([float("-inf"), None], pa.float32()),
        }
    )
    sql = Sql("SELECT * RENAME (m AS map), d * 2 AS twice, l[1] AS first, s.a[1].b AS b FROM rows")
    output_rows = apply(sql, decoded(rows)).rows
    assert [output_rows.column(i) for i in range(7)] == rows.columns
    assert output_rows.schema.names[:7] == ["d", "at", "day", "l", "s", "map", "f"]
    assert output_rows["twice"].to_pylist() == [Decimal("2.40"), None]
    assert (output_rows["first"].to_pylist(), output_rows["b"].to_pylist()) == (
        [1, None],
        [b"\xff", None],
    )


def test_days_are_those_of_utc() -> None:
    """A timestamp's day is that of UTC, whatever the machine's zone is."""
    rows = pa.record_batch({"seen": pa.array([datetime(2026, 1, 5, 2, tzinfo=UTC)])})
    assert selected("SELECT CAST(seen AS DATE) AS day FROM rows", rows) == [
        {"day": date(2026, 1, 5)}
    ]


def test_nested_values_are_computed() -> None:
    """Computed lists, structs and maps have the types of tables.

    Nested lambdas see the outer parameters.
    """
    rows = pa.record_batch({"l": pa.array([[1, 2]], pa.list_(pa.int64()))})
    query = (
        "SELECT list_transform(l, lambda X: list_transform([1], lambda y: x + y)[1]) AS l,"
        " {'a': l, 'b': 'x'} AS s, MAP {'k': l} AS m FROM rows"
    )
    assert selected(query, rows) == [
        {"l": [2, 3], "s": {"a": [1, 2], "b": "x"}, "m": [("k", [1, 2])]}
    ]


def test_a_row_that_fails_is_a_dead_letter_without_its_values() -> None:
    """A row that fails is a dead letter with the expression and DuckDB's message.

    The detail has no values. The other rows are unaffected.
    """
    rows = pa.record_batch({"n": pa.array([1, 2**62, 3, 4]), "t": ["5", "6", "secret 777", None]})
    output = apply(Sql("SELECT n * 4 AS n4, CAST(t AS INT) AS t FROM rows", "step"), decoded(rows))
    assert output.rows.to_pylist() == [{"n4": 4, "t": 5}, {"n4": 16, "t": None}]
    assert [(index, stage) for index, stage, _ in dead(output)] == [(1, "rules"), (2, "rules")]
    assert output.dead_reason.to_pylist() == ["sql:n4", "sql:t"]
    overflow, conversion = output.dead_detail.to_pylist()
    assert overflow.startswith("Out of Range Error: Overflow in multiplication of INT64")
    assert overflow.endswith(" - in n4 of step")
    assert conversion == "Conversion Error: Could not convert string - in t of step"
    for value in (str(2**62), "secret", "777"):
        assert value not in overflow + conversion


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t::INT AS a, t::INT + 1 AS b FROM rows",
        "SELECT t FROM rows WHERE t::INT > 1 AND t::INT < 9",
        "SELECT t::INT BETWEEN 1 AND 9 AS a FROM rows",
        "SELECT t::INT AS a FROM rows WHERE t::INT > 1",
        "SELECT CASE WHEN t::INT > 3 THEN t::INT ELSE 0 END AS a FROM rows",
        "SELECT TIMESTAMPTZ '2026-01-05 00:00:00+00' AT TIME ZONE t AT TIME ZONE t AS a FROM rows",
        "SELECT 'abc' LIKE t || '%' ESCAPE t AS a FROM rows",
    ],
)
def test_each_way_to_fail_is_a_dead_letter(query: str) -> None:
    """Each kind of failure is a dead letter, and the good rows pass.

    This includes repeated expressions and failures that TRY doesn't catch.
    """
    good = "UTC" if "ZONE" in query else "5"
    rows = pa.record_batch({"t": [good, "no such", good]})
    output = apply(Sql(query), decoded(rows))
    assert (output.dead_index.to_pylist(), output.rows.num_rows) == ([1], 2)


def test_try_gives_null_for_what_is_there_twice() -> None:
    """A failure that the query's own TRY catches is no failure of the row."""
    rows = pa.record_batch({"t": ["5", "x"], "c": pa.array([None, 1])})
    query = "SELECT TRY(t::INT) AS a, TRY(t::INT + 1) AS b, coalesce(c, t::INT) AS c FROM rows"
    assert selected(query, rows) == [{"a": 5, "b": 6, "c": 5}, {"a": None, "b": None, "c": 1}]


def test_a_map_with_a_key_twice_is_a_dead_letter() -> None:
    """A map with a repeated key is a dead letter, because DuckDB can't read it."""
    twice = pa.array([[("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    output = apply(Sql("SELECT m['a'] AS a FROM rows"), decoded(pa.record_batch({"m": twice})))
    assert (output.rows["a"].to_pylist(), output.dead_index.to_pylist()) == ([1], [1])


def test_a_map_that_can_not_be_read_is_left_out_with_its_row() -> None:
    """A row that the WHERE filters is no dead letter, even if it has an unreadable map."""
    twice = pa.array(
        [[("a", 1)], [("a", 1), ("a", 2)], [("a", 3)]], pa.map_(pa.string(), pa.int64())
    )
    rows = pa.record_batch({"m": twice, "n": [1, 0, 1]})
    for batch, expected in ((rows, [{"a": 1}, {"a": 3}]), (rows.slice(1, 1), [])):
        output = apply(Sql("SELECT m['a'] AS a FROM rows WHERE n > 0"), decoded(batch))
        assert (output.rows.to_pylist(), output.dead_index.to_pylist()) == (expected, [])
    output = apply(Sql("SELECT m['a'] AS a FROM rows WHERE n = 0"), decoded(rows))
    assert (output.rows.num_rows, output.dead_index.to_pylist()) == (0, [1])


def test_what_no_calendar_has_is_a_dead_letter() -> None:
    """A timestamp that DuckDB can hold but a table can't is a dead letter, at any depth."""
    rows = pa.record_batch({"ms": pa.array([0, 10**15, None])})
    for template in ("{}", "[{}]", "{{'k': {}}}", "MAP {{'k': [{}]}}"):
        query = f"SELECT {template.format('make_timestamptz(ms * 1000)')} AS at_ FROM rows"
        output = apply(Sql(query), decoded(rows))
        assert "datetime.datetime(1970, 1, 1" in str(output.rows["at_"].to_pylist())
        assert (output.rows.num_rows, output.dead_reason.to_pylist()) == (2, ["sql:at_"])


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT t::INT AS a FROM rows", "DE12 Jo\nxx"),
        ("SELECT (t || 'Smith')::DATE AS a FROM rows", "John"),
        ("SELECT (t->>'$.a')::INT AS a FROM rows", '{"a": "\\u0053ecret"}'),
        ("SELECT regexp_matches('a', t) AS a FROM rows", "(AB123456"),
        ("SELECT json_extract(t, '$.a')::VARCHAR AS a FROM rows", "{Jo"),
        ("SELECT strptime(t, '%Y') AT TIME ZONE 'UTC' AS a FROM rows", "Jo"),
    ],
)
def test_no_value_is_in_a_sentence(query: str, text: str) -> None:
    """No value is in a dead letter's detail, whatever DuckDB's message quotes."""
    output = apply(Sql(query), decoded(pa.record_batch({"t": [text]})))
    (detail,) = output.dead_detail.to_pylist()
    assert detail.endswith(" - in a of sql")
    assert not [word for word in ("DE12", "Jo", "Smith", "ecret", "AB1") if word in detail]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT CAST(t AS INT) AS n, unnest(l) AS u FROM rows",
        "SELECT l FROM rows WHERE NOT (i > 5 OR CAST(t AS INT) > 5)",
        "SELECT l FROM rows WHERE i BETWEEN CAST(t AS INT) AND 5",
        "SELECT length(to_json(i)) + CAST(t AS INT) AS n FROM rows",
    ],
)
def test_a_row_fails_alone_as_in_company(query: str) -> None:
    """A row fails in each batch or in none, even if DuckDB may skip the failing expression.

    DuckDB skips it for empty lists, for conditions that it splits, and for arguments that are
    null in all rows.
    """
    rows = pa.record_batch(
        {"t": ["x", "x", "1"], "l": [[1], [], [1, 2]], "i": pa.array([7, None, 1])}
    )
    together, output_per_row = apply(Sql(query), decoded(rows)), []
    for row_index in range(3):
        output = apply(Sql(query), decoded(rows.slice(row_index, 1)))
        output_per_row.append((len(output.dead_index), output.rows.to_pylist()))
    assert together.dead_index.to_pylist() == [
        row_index for row_index in range(3) if output_per_row[row_index][0]
    ]
    assert together.rows.to_pylist() == [
        row for _, output_rows in output_per_row for row in output_rows
    ]


def test_an_unnested_list_that_is_empty_makes_no_row_beside_a_longer_one() -> None:
    """With several unnested lists in a row, shorter lists are filled with nulls, as in DuckDB."""
    rows = pa.record_batch({"l": [[1, None], [], None, [3]], "m": [["a"], ["b"], None, []]})
    assert selected("SELECT unnest(l) AS l, unnest(m) AS m FROM rows", rows) == [
        {"l": 1, "m": "a"},
        {"l": None, "m": None},
        {"l": None, "m": "b"},
        {"l": 3, "m": None},
    ]


def test_many_failing_rows_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many failing rows cost one query for each column.

    The first row of each column gets DuckDB's message.
    """
    row_counts, real = [], step.locked

    class Counted:
        """A DuckDB that records the number of rows of each query."""

        def __init__(self) -> None:
            self.real = real()

        def register(self, name: str, rows: pa.Table) -> None:
            row_counts.append(rows.num_rows)
            self.real.register(name, rows)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

    monkeypatch.setattr(step, "locked", Counted)
    rows = pa.record_batch({"t": ["x", "x", "x", "1", "1"], "u": ["1", "1", "1", "y", "y"]})
    query = "SELECT t::INT AS t, u::INT AS u FROM rows"
    output = apply(Sql(query), decoded(rows))
    details = output.dead_detail.to_pylist()
    words = [detail.startswith("Conversion Error") for detail in details]
    assert words == [True, False, False, True, False]
    assert details[4] == f"It fails, and another row of its batch by {details[3]}"
    assert row_counts.count(1) == 2


def test_conditions_are_asked_in_their_order() -> None:
    """The sides of AND and OR are evaluated in order, so that a guard protects the next side."""
    kinds, texts = ["n", "t"] * 5000, ["7", "x"] * 5000
    rows = pa.record_batch({"kind": kinds, "text": texts})
    both = "SELECT text FROM rows WHERE kind = 'n' AND CAST(text AS INT) > 0"
    assert selected(both, rows) == [{"text": "7"}] * 5000
    either = "SELECT text FROM rows WHERE kind = 't' OR CAST(text AS INT) > 0"
    assert len(selected(either, rows)) == 10000


def test_a_filter_that_fails_is_a_dead_letter_of_the_filter() -> None:
    """A failing WHERE is a dead letter of the WHERE, and filtered rows fail by no column."""
    rows = pa.record_batch({"text": ["1", "x", "0", None], "other": ["a", "1", "a", "a"]})
    query = "SELECT CAST(other AS INT) AS other FROM rows WHERE CAST(text AS INT) > 0"
    output = apply(Sql(query), decoded(rows))
    assert output.dead_reason.to_pylist() == ["sql:other", "sql:WHERE"]
    assert (output.dead_index.to_pylist(), output.filtered) == ([0, 1], 2)


def test_a_runaway_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SELECT that takes too long raises SpecError."""
    rows = pa.record_batch({"n": pa.array(range(1_000_000))})
    monkeypatch.setattr(step, "SECONDS", 0.05)
    long = "SELECT sha256(sha256(sha256(n::VARCHAR))) AS n FROM rows"
    with pytest.raises(SpecError, match=r"sql took longer than 0\.05 s for 1,000,000 rows"):
        apply(Sql(long), decoded(rows))


@pytest.mark.parametrize(
    ("error", "room", "message"),
    [
        (duckdb.OutOfMemoryException("Out of Memory"), 1, "no memory for what it makes of 2 rows"),
        (duckdb.InvalidInputException("Arrow Appender: 'x'"), 0, "too large for a batch of 1 row "),
        (pa.ArrowInvalid("offset overflow"), 1, "too large for a batch of 2 rows "),
        (duckdb.InvalidInputException("Arrow Appender: 'x'"), 1, None),
    ],
)
def test_what_is_too_large_for_a_batch(
    monkeypatch: pytest.MonkeyPatch, error: Exception, room: int, message: str | None
) -> None:
    """A result that is too large for DuckDB's memory is computed in parts.

    If a part doesn't fit either, the task fails with the setting that helps.
    """

    class Full:
        """A DuckDB that has room for a limited number of rows."""

        def __init__(self, rows: int = 0) -> None:
            self.rows, self.real = rows, real()

        def register(self, name: str, rows: pa.Table) -> None:
            self.rows = rows.num_rows
            self.real.register(name, rows)

        def sql(self, query: str) -> Any:
            if self.rows > room and "TRY" not in query:
                raise error
            return self.real.sql(query)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

    real = step.locked
    monkeypatch.setattr(step, "locked", Full)
    rows, sql = pa.record_batch({"n": pa.array([1, 2])}), Sql("SELECT n + 1 AS n FROM rows")
    if message is None:
        assert apply(sql, decoded(rows)).rows["n"].to_pylist() == [2, 3]
        return
    with pytest.raises(SpecError, match=message) as refused:
        apply(sql, decoded(rows))
    assert "source.tuning.batch_messages" in refused.value.advice


def test_a_duckdb_that_can_not_go_on_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DuckDB with an internal error refuses no row.

    The task fails, and the next task of the process gets another DuckDB.
    """
    rows, sql = pa.record_batch({"n": pa.array([1, 2])}), Sql("SELECT n + 1 AS n FROM rows")
    dead, real = step.locked(), step.locked

    class Dead:
        """A DuckDB that has failed an internal assertion."""

        def __getattr__(self, name: str) -> Any:
            return getattr(dead, name)

        def sql(self, query: str) -> Any:
            if "rows" in query and self.has_answered:
                raise duckdb.FatalException("the database was invalidated by hush")
            self.has_answered = True
            return dead.sql(query)

        has_answered = False

    monkeypatch.setattr(step, "locked", Dead)
    dead.execute("CREATE TABLE mark (n INT)")
    with pytest.raises(BugError, match="FatalException") as excinfo:
        apply(sql, decoded(rows))
    assert "hush" not in str(excinfo.value)
    monkeypatch.setattr(step, "locked", real)
    assert apply(sql, decoded(rows)).rows["n"].to_pylist() == [2, 3]
    with pytest.raises(duckdb.CatalogException):
        step.locked().sql("SELECT * FROM mark")


def test_no_file_is_read() -> None:
    """A query can read no file and no variable of Python."""
    secret = pa.table({"a": [1]})
    assert secret.num_rows
    with pytest.raises(SpecError):
        Sql("SELECT * FROM secret").columns(ORDERS)
    con = step.locked()
    for query in (
        "SELECT * FROM secret",
        "SELECT * FROM 'x.csv'",
        "INSTALL httpfs",
        "SET threads=2",
    ):
        with pytest.raises(duckdb.Error):
            con.execute(query)


# Tables with a primary key -------------------------------------------------------------------

KEYED = pa.record_batch(
    {
        "id": pa.array([1, 2, 1, 3]),
        "state": ["on", "off", "off", "on"],
        "note": ["a", None, "c", "d"],
    }
)


def keyed(query: str, **more: Any) -> Sql:
    return Sql(query, primary_key=("id",), **more)


def test_what_a_filter_leaves_out_is_deleted() -> None:
    """A row that WHERE filters deletes its key at its message's place, next to other deletes."""
    deletes = Deletes(pa.record_batch({"id": pa.array([9])}), pa.array([2], pa.int64()))
    output = apply(keyed("SELECT * FROM rows WHERE state = 'on'"), decoded(KEYED, deletes=deletes))
    assert output.rows["id"].to_pylist() == [1, 3]
    assert output.deletes is not None
    assert output.deletes.index.to_pylist() == [1, 2, 2]
    assert output.deletes.keys["id"].to_pylist() == [2, 9, 1]
    assert (output.valid, output.filtered) == (4, 0)


def test_the_last_row_of_a_key_in_a_message_counts() -> None:
    """The last row of a key in a message counts.

    A kept row is deleted by a later filtered row of its key, and not by an earlier one.
    """
    rows = pa.record_batch({"id": pa.array([1, 1, 2, 2]), "state": ["on", "off", "off", "on"]})
    output = apply(keyed("SELECT * FROM rows WHERE state = 'on'"), decoded(rows, [0, 0, 1, 1]))
    assert (output.rows["id"].to_pylist(), output.row_index.to_pylist()) == ([2], [1])
    assert output.deletes is not None
    assert output.deletes.keys["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("query", "versioned", "message"),
    [
        ("SELECT id + 1 AS id, state FROM rows", False, "doesn't pass on id of sink.primary_key"),
        ("SELECT state FROM rows", False, "doesn't pass on id of sink.primary_key"),
        ("SELECT id, unnest([state]) AS s FROM rows", False, "unnest makes several rows of one"),
        ("SELECT * FROM rows WHERE id > 1", True, "with sink.version nothing is deleted"),
    ],
)
def test_what_a_key_forbids_is_refused(query: str, versioned: bool, message: str) -> None:
    """A step must pass the key unchanged, one row for each row, and must not filter versions."""
    with pytest.raises(SpecError, match=message):
        keyed(query, versioned=versioned).columns(columns_of(KEYED))


def test_behind_a_spark_step_nothing_is_unnested(tmp_path: Path) -> None:
    """A step after a `spark` step can't unnest, because the rows there have no numbers.

    It is refused before anything is read.
    """
    step = SqlSection(sql="SELECT id, unnest(lines) AS line FROM rows")
    assert step.transform(StepContext("s", tmp_path)).columns(ORDERS)
    with pytest.raises(SpecError, match="unnest before it, or explode in its function"):
        step.transform(StepContext("s", tmp_path, behind_spark=True)).columns(ORDERS)


def test_what_a_message_left_alone_stays_so() -> None:
    """A column that the message left unchanged is unchanged under another name too.

    So is each expression of it alone, even if it would make a value of null. A WHERE with it,
    or an expression that mixes it with changed columns, has no result, so the message is a dead
    letter.
    """
    unavailable = pa.array([[], ["note"], [], []], pa.list_(pa.string()))
    input_batch = decoded(KEYED, unavailable=unavailable)
    query = "SELECT id, note AS words, coalesce(note, 'none') AS told, state FROM rows"
    output = apply(keyed(query), input_batch)
    assert output.unavailable is not None
    assert output.unavailable.to_pylist() == [[], ["words", "told"], [], []]
    assert output.rows["told"].to_pylist() == ["a", None, "c", "d"]
    json = "SELECT id, coalesce(note->'$.a', 'none')::VARCHAR AS a FROM rows"
    notes = pa.array(['{"a": 1}'] * 4)
    of_json = replace(input_batch, rows=KEYED.set_column(2, "note", notes))
    arrow = apply(keyed(json), of_json)
    assert arrow.unavailable is not None
    assert arrow.unavailable.to_pylist() == [[], ["a"], [], []]
    mixed = apply(keyed("SELECT id, state || coalesce(note, '') AS both_ FROM rows"), input_batch)
    assert mixed.dead_reason.to_pylist() == ["sql:both_:unavailable"]
    renamed = apply(keyed("SELECT id, note AS words FROM rows"), input_batch)
    assert renamed.unavailable is not None
    assert renamed.unavailable.to_pylist() == [[], ["words"], [], []]
    filtered = apply(keyed("SELECT * FROM rows WHERE note <> 'c'"), input_batch)
    assert (filtered.dead_index.to_pylist(), filtered.dead_reason.to_pylist()) == (
        [1],
        ["sql:WHERE:unavailable"],
    )


def test_a_step_takes_columns_that_it_does_not_read() -> None:
    """DuckDB gets only the used columns, so an unreadable unused column passes unchanged."""
    twice = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    rows = pa.record_batch({"n": pa.array([1]), "x": twice})
    assert selected("SELECT n + 1 AS m, x FROM rows", rows) == [{"m": 2, "x": [("a", 1), ("a", 2)]}]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT (id + 1) AS name FROM rows",
        "SELECT upper(text) AS t FROM rows",
        "SELECT epoch_ms(id) AT TIME ZONE 'UTC' AS t FROM rows",
        "SELECT CAST(text AS TIMESTAMPTZ) AS t FROM rows",
        "SELECT CAST(id::HUGEINT AS DECIMAL(38, 0)) AS n FROM rows",
        "SELECT CAST(hash(id) AS DECIMAL(38, 0)) AS h FROM rows",
        "SELECT CAST(NULL AS VARCHAR) AS n FROM rows",
        "SELECT CAST(TIME '10:00' AS VARCHAR) AS t FROM rows",
    ],
)
def test_the_way_out_of_a_refusal_works(query: str) -> None:
    """A refusal's suggested SELECT is accepted."""
    assert len(Sql(query).columns(ORDERS).columns) == 1
