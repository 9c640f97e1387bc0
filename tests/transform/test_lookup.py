"""The `lookup` step: columns of a table's pinned version, found by the rows' keys."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from typing import Any, Literal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog, load_catalog

from tests.s3.server import S3Server
from tests.sinks.worlds import world_of
from tests.transform.small_verdicts import columns_of, decoded
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.lookups.table import parquet
from windrow.ingest.lookups.table import source as tables
from windrow.ingest.lookups.table.kind import TableSection
from windrow.ingest.lookups.table.parquet import ParquetFiles
from windrow.ingest.ports.lookup import Answers, Ask, LookupSource
from windrow.ingest.ports.transform import Transform
from windrow.ingest.testing.contracts.transform import (
    Before,
    TransformContract,
    apply,
    messages_for,
)
from windrow.ingest.testing.contracts.values import dead
from windrow.ingest.testing.contracts.windows import plan, staged_rows
from windrow.ingest.testing.contracts.with_dead_letters import OWNER
from windrow.ingest.transform.chain import columns_after
from windrow.ingest.transform.lookup import step as step_of_lookups
from windrow.ingest.transform.lookup.step import Lookup

CUSTOMERS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "name": pa.array(["Ann", None, "Cid"], pa.large_string()),
        "born": pa.array([dt.date(1990, 1, 1), dt.date(1991, 1, 1), None]),
    }
)
ORDERS = pa.RecordBatch.from_pydict(
    {"order": pa.array([10, 11, 12, 13, 14]), "customer": pa.array([3, 1, 7, None, 1])}
)


@dataclass(frozen=True)
class Store:
    """A kind of table.

    Attributes:
        section: makes the options of a source.
        write: makes the table, or adds rows to it.
        forget: removes older versions.
        grows: whether older versions can still be read after a write.
    """

    section: Callable[[Path], dict[str, Any]]
    write: Callable[[Path, pa.Table], None]
    forget: Callable[[Path, pa.Table], None]
    grows: bool = True


def _catalog(folder: Path) -> Catalog:
    folder.mkdir(exist_ok=True)
    catalog = load_catalog(
        "default", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
    )
    catalog.create_namespace_if_not_exists("lake")
    return catalog


def _to_iceberg(folder: Path, rows: pa.Table) -> None:
    catalog = _catalog(folder)
    catalog.create_table_if_not_exists("lake.customers", rows.schema).append(rows)


def _anew_in_iceberg(folder: Path, rows: pa.Table) -> None:
    _catalog(folder).drop_table("lake.customers")
    _to_iceberg(folder, rows)


def _to_delta(folder: Path, rows: pa.Table) -> None:
    write_deltalake(folder, rows, mode="append")


def _vacuumed(folder: Path, rows: pa.Table) -> None:
    write_deltalake(folder, rows, mode="overwrite")
    DeltaTable(folder).vacuum(0, dry_run=False, enforce_retention_duration=False)


def _to_parquet(folder: Path, rows: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(rows, folder / f"{len(list(folder.iterdir()))}.parquet")


def _anew(folder: Path, rows: pa.Table) -> None:
    shutil.rmtree(folder)
    _to_delta(folder, rows)


def _to_emptied_delta(folder: Path, rows: pa.Table) -> None:
    DeltaTable.create(folder, rows.schema, mode="ignore")
    _to_delta(folder, rows)


def _restored(folder: Path, rows: pa.Table) -> None:
    """Restores the backup from before the newest version, and writes to it."""
    (folder / "_delta_log" / f"{1:020}.json").unlink()
    _to_delta(folder, rows)


STORES = {
    "delta": Store(lambda folder: {"table": str(folder)}, _to_delta, _vacuumed),
    "delta-anew": Store(lambda folder: {"table": str(folder)}, _to_delta, _anew),
    "delta-restored": Store(lambda folder: {"table": str(folder)}, _to_emptied_delta, _restored),
    "iceberg": Store(
        lambda folder: {"table": "lake.customers", "warehouse": str(folder)},
        _to_iceberg,
        _anew_in_iceberg,
    ),
    "parquet": Store(lambda folder: {"table": str(folder)}, _to_parquet, _to_parquet, grows=False),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    """Each kind of table."""
    return STORES[request.param]


def source(store: Store, folder: Path) -> LookupSource:
    return TableSection.model_validate(store.section(folder)).source(folder)


def customers(folder: Path, rows: pa.Table = CUSTOMERS, **more: Any) -> Lookup:
    """Returns a lookup in a Delta table of customers."""
    _to_delta(folder / "customers", rows)
    customers_source = source(STORES["delta"], folder / "customers")
    return Lookup(
        "customers",
        (("customer", "id"),),
        (("name", "customer_name"), ("born", "born")),
        customers_source,
        **more,
    )


class TestLookup(TransformContract):
    """New columns in each row. A row without an answer is a dead letter, or gets nulls."""

    @pytest.fixture
    def input_rows(self) -> Before:
        return Before(columns_of(ORDERS), ORDERS, (0, 0, 1, 2, 3))

    @pytest.fixture(params=["null", "dead"])
    def transform(self, request: pytest.FixtureRequest, tmp_path: Path) -> Transform:
        return customers(tmp_path, on_miss=request.param)


def test_each_row_gets_what_its_key_has(store: Store, tmp_path: Path) -> None:
    """Each row gets the columns of its key, in the order of rows.

    A null key and a missing key are misses.
    """
    store.write(tmp_path / "t", CUSTOMERS)
    lookup = Lookup(
        "customers", (("customer", "id"),), (("name", "who"),), source(store, tmp_path / "t")
    )
    output = apply(lookup, decoded(ORDERS))
    assert output.rows["who"].to_pylist() == ["Cid", "Ann", None, None, "Ann"]
    assert output.rows.schema.equals(lookup.columns(columns_of(ORDERS)).arrow_schema)
    (looked_up,) = output.lookups
    assert (looked_up.keys, looked_up.hits, looked_up.misses) == (3, 3, 2)


def test_a_pinned_version_answers_the_same_later(store: Store, tmp_path: Path) -> None:
    """A pinned version gives the same answers after the table has grown and changed.

    Plain files have no versions, so a changed file is refused.
    """
    store.write(tmp_path / "t", CUSTOMERS)
    lookup = Lookup(
        "customers", (("customer", "id"),), (("name", "who"),), source(store, tmp_path / "t")
    )
    pinned = lookup.pinned({"customers": lookup.source.version()})
    first = apply(pinned, decoded(ORDERS))
    store.write(tmp_path / "t", CUSTOMERS.set_column(0, "id", pa.array([7, 8, 9], pa.int32())))
    if store.grows:
        repeated = apply(pinned, decoded(ORDERS))
        assert repeated.rows.equals(first.rows)
        assert repeated.lookups[0].answers == first.lookups[0].answers
    else:
        with pytest.raises(RefusedError, match="--fresh-lookups"):
            apply(pinned, decoded(ORDERS))
    now = apply(lookup, decoded(ORDERS))
    assert now.rows["who"].to_pylist() == ["Cid", "Ann", "Ann", None, "Ann"]
    assert now.lookups[0].answers != first.lookups[0].answers


def test_a_version_that_is_gone_is_refused(store: Store, tmp_path: Path) -> None:
    """A pinned version that is gone raises RefusedError with the way out.

    It was vacuumed, or the table was recreated, or restored from a backup with another version
    of the same number.
    """
    store.write(tmp_path / "t", CUSTOMERS)
    lookup = Lookup(
        "customers", (("customer", "id"),), (("name", "who"),), source(store, tmp_path / "t")
    )
    pinned = lookup.pinned({"customers": lookup.source.version()})
    store.forget(tmp_path / "t", CUSTOMERS)
    with pytest.raises(RefusedError, match="--fresh-lookups"):
        apply(pinned, decoded(ORDERS))


@pytest.mark.parametrize("on_miss", ["dead", "fail"])
def test_what_a_miss_becomes(on_miss: Literal["dead", "fail"], tmp_path: Path) -> None:
    """A miss is a dead letter, or a refusal that names the message and not the key."""
    lookup = customers(tmp_path, on_miss=on_miss)
    if on_miss == "dead":
        output = apply(lookup, decoded(ORDERS))
        assert dead(output) == [
            (2, "rules", "lookup:customers:no_match"),
            (3, "rules", "lookup:customers:no_match"),
        ]
        assert output.rows["order"].to_pylist() == [10, 11, 14]
        return
    with pytest.raises(
        RefusedError, match="customers has no row for the key of 2 of 5 rows"
    ) as refused:
        apply(lookup, decoded(ORDERS))
    assert refused.value.offset is not None
    assert "7" not in refused.value.message.partition(":")[0]
    assert "--fresh-lookups" in refused.value.advice


def test_several_rows_of_one_key(tmp_path: Path) -> None:
    """Several rows of one key are refused when the key occurs.

    With `first_by` the first row by a column counts.
    """
    twice = pa.concat_tables(
        [
            CUSTOMERS,
            CUSTOMERS.slice(0, 1)
            .set_column(1, "name", pa.array(["Bob"], pa.large_string()))
            .set_column(2, "born", pa.array([dt.date(1999, 1, 1)])),
        ]
    )
    lookup = customers(tmp_path, twice)
    with pytest.raises(RefusedError, match="several rows of one key") as refused:
        apply(lookup, decoded(ORDERS))
    assert refused.value.offset is not None
    others = ORDERS.filter(pa.array([True, False, True, True, False]))
    assert apply(lookup, decoded(others)).rows["customer_name"].to_pylist() == ["Cid", None, None]
    for descending, name in ((False, "Ann"), (True, "Bob")):
        ordered_lookup = replace(lookup, first_by=("born", descending))
        assert apply(ordered_lookup, decoded(ORDERS)).rows["customer_name"][1].as_py() == name


@pytest.mark.parametrize("hashes", [2**64 - 1, 1])
def test_each_key_is_asked_for_once(
    hashes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key is requested once in a split, without nulls, in the order of rows.

    Each row has its answer, even if hashes collide.
    """
    hashed = pl.DataFrame.hash_rows
    monkeypatch.setattr(pl.DataFrame, "hash_rows", lambda frame: hashed(frame) % hashes)
    requested_keys: list[list[int]] = []

    @dataclass(frozen=True)
    class Counts:
        source: LookupSource

        @property
        def identity(self) -> str:
            return "counts"

        @property
        def is_repeatable(self) -> bool:
            return True

        def version(self) -> str:
            return self.source.version()

        def schema(self) -> pa.Schema:
            return self.source.schema()

        def open(self, version: str, columns: pa.Schema) -> Ask:
            ask = self.source.open(version, columns)

            def counted(keys: pa.Table) -> Answers:
                requested_keys.append(keys["id"].to_pylist())
                return ask(keys)

            return counted

    lookup = customers(tmp_path)
    step = replace(lookup, source=Counts(lookup.source)).open()
    names = []
    for batch in (
        ORDERS,
        ORDERS,
        ORDERS.slice(0, 1),
        pa.RecordBatch.from_pydict({"order": pa.array([1, 2]), "customer": pa.array([2, 3])}),
    ):
        input_batch = decoded(batch)
        names.append(step(input_batch, messages_for(input_batch)).rows["customer_name"].to_pylist())
    assert requested_keys == [[1, 3, 7], [2]]
    expected = ["Cid", "Ann", None, None, "Ann"]
    assert names == [expected, expected, ["Cid"], [None, "Cid"]]


def test_the_checksum_of_answers_tells_whose_they_are(tmp_path: Path) -> None:
    """The checksum of answers changes if two keys exchange their answers."""
    checksums = []
    for n, names in enumerate((["Ann", "Bob"], ["Bob", "Ann"])):
        _to_parquet(tmp_path / str(n), pa.table({"id": [1, 2], "name": names}))
        parquet_source = source(STORES["parquet"], tmp_path / str(n))
        lookup = Lookup("c", (("customer", "id"),), (("name", "name"),), parquet_source)
        rows = pa.RecordBatch.from_pydict({"customer": [1, 2]})
        checksums.append(apply(lookup, decoded(rows)).lookups[0].answers)
    assert checksums[0] != checksums[1]


_NUMBERS, _LETTERS = st.integers(0, 5), st.sampled_from(["a", "b", None])


@given(
    table=st.lists(st.tuples(_NUMBERS, _LETTERS), max_size=8, unique=True),
    rows=st.lists(st.tuples(st.none() | _NUMBERS, _LETTERS), max_size=12),
)
def test_several_columns_are_one_key(
    table: list[tuple[int, str | None]],
    rows: list[tuple[int | None, str | None]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A key of several columns gives the same rows as a dictionary.

    A null in a key matches nothing.
    """
    folder = tmp_path_factory.mktemp("t")
    columns = {
        "a": pa.array([a for a, _ in table], pa.int64()),
        "b": pa.array([b for _, b in table], pa.string()),
        "n": pa.array(range(len(table)), pa.int64()),
    }
    pq.write_table(pa.table(columns), folder / "t.parquet")
    parquet_source = source(STORES["parquet"], folder)
    lookup = Lookup("t", (("x", "a"), ("y", "b")), (("n", "n"),), parquet_source)
    key_columns = {
        "x": pa.array([x for x, _ in rows], pa.int16()),
        "y": pa.array([y for _, y in rows], pa.string()),
    }
    number_by_key = {(a, b): n for n, (a, b) in enumerate(table) if b is not None}
    output = apply(lookup, decoded(pa.RecordBatch.from_pydict(key_columns)))
    assert output.rows["n"].to_pylist() == [number_by_key.get(row) for row in rows]


@pytest.mark.parametrize(
    ("key", "take", "message"),
    [
        (("customer", "nr"), ("name", "who"), "customers has no column nr"),
        (("client", "id"), ("name", "who"), "the rows have no column client"),
        (("customer", "name"), ("born", "who"), "customer is int64, and name is string"),
        (("customer", "id"), ("name", "order"), "'order' comes twice"),
    ],
)
def test_what_can_never_fit_is_refused_before_anything_is_read(
    key: tuple[str, str], take: tuple[str, str], message: str, tmp_path: Path
) -> None:
    """A lookup that can't fit raises SpecError before anything is read.

    A column is missing, a key has another type, or a new name exists already.
    """
    lookup = replace(customers(tmp_path), key=(key,), take=(take,))
    with pytest.raises(SpecError, match=message):
        columns_after(lookup, columns_of(ORDERS))


def test_files_with_a_column_name_twice(tmp_path: Path) -> None:
    """A repeated column name in files is refused with the file, because it is ambiguous.

    A repeated name that isn't used does no harm.
    """
    twice = pa.Table.from_arrays(
        [pa.array([1, 2]), *[pa.array(["a", "b"])] * 2], ["id", "name", "name"]
    )
    _to_parquet(tmp_path / "t", twice)
    parquet_source = source(STORES["parquet"], tmp_path / "t")
    lookup = Lookup("t", (("customer", "id"),), (("name", "who"),), parquet_source)
    says = "t has 2 columns name of a type that a table takes; it has id, name, name"
    with pytest.raises(SpecError, match=says):
        lookup.columns(columns_of(ORDERS))
    for key in ("name", "id"):
        with pytest.raises(SpecError, match="name any more, or several"):
            replace(lookup, key=(("customer", key),)).requested_schema()
    only = replace(lookup, take=(("id", "nr"),))
    assert apply(only, decoded(ORDERS)).rows["nr"].to_pylist() == [None, 1, None, None, 1]

    _to_parquet(tmp_path / "u", CUSTOMERS)
    _to_parquet(tmp_path / "u", twice)
    lookup = replace(lookup, source=source(STORES["parquet"], tmp_path / "u"))
    with pytest.raises(RefusedError, match=r"1\.parquet has no column name, or several"):
        apply(lookup, decoded(ORDERS))


def test_what_a_message_left_unchanged_stays_so(tmp_path: Path) -> None:
    """If the key is unchanged, the looked-up columns are unchanged too, and the row is no miss."""
    unavailable = pa.array([[], ["customer"], ["order"], [], []], pa.list_(pa.string()))
    output = apply(customers(tmp_path, on_miss="dead"), decoded(ORDERS, unavailable=unavailable))
    assert output.unavailable is not None
    assert output.unavailable.to_pylist() == [[], ["customer", "customer_name", "born"], []]
    assert output.rows["customer_name"].to_pylist() == ["Cid", None, "Ann"]
    assert dead(output) == [
        (2, "rules", "lookup:customers:no_match"),
        (3, "rules", "lookup:customers:no_match"),
    ]


def test_a_table_that_a_worker_can_not_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is too large for a worker raises SpecError with the way out."""
    monkeypatch.setattr(tables, "MOST_BYTES", 10)
    with pytest.raises(SpecError, match="more than 0 MiB of memory") as refused:
        apply(customers(tmp_path), decoded(ORDERS))
    assert "spark step" in refused.value.advice


def test_answers_that_take_too_much_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers that need too much memory raise SpecError. All answers of a split count."""
    monkeypatch.setattr(step_of_lookups, "MOST_BYTES", 40)
    step = customers(tmp_path).open()
    for number, refused in ((1, False), (2, False), (3, True)):
        rows = decoded(pa.RecordBatch.from_pydict({"order": [1], "customer": [number]}))
        if refused:
            with pytest.raises(SpecError, match="The answers of customers take more than"):
                step(rows, messages_for(rows))
        else:
            step(rows, messages_for(rows))


def test_a_windrow_table_of_files_has_its_committed_rows(tmp_path: Path) -> None:
    """A lookup in a table of windrow's files sees only committed rows.

    A column that was added later is null in older rows, also if it is the key.
    """
    for number, committed in ((0, True), (1, True), (2, False)):
        rows = pa.RecordBatch.from_pydict(
            {"id": range(10)} | ({"later": range(10, 20)} if number else {})
        )
        sink = world_of("files").sink_at(str(tmp_path / "t"), rows.schema)
        sink.prepare(OWNER)
        receipt, staged = staged_rows(sink, plan(sink, number), lambda _, rows=rows: [rows])
        if committed:
            sink.commit(receipt, staged)
    parquet_source = source(STORES["parquet"], tmp_path / "t")
    orders = pa.RecordBatch.from_pydict({"customer": [3, 13, 23]})
    by_offset = (("customer", "_offset"),)
    lookup = Lookup("t", by_offset, (("later", "later"),), parquet_source, first_by=("later", True))
    assert apply(lookup, decoded(orders)).rows["later"].to_pylist() == [None, 13, None]
    lookup = Lookup(
        "t", (("customer", "later"),), (("id", "id"),), parquet_source, first_by=("id", True)
    )
    output = apply(lookup, decoded(orders))
    assert output.rows["id"].to_pylist() == [None, 3, None]
    assert output.lookups[0].hits == 1


def test_a_key_too_large_for_the_tables_column_is_a_miss(tmp_path: Path) -> None:
    """A key that is too large for the table's column is a miss, and doesn't block the window."""
    rows = pa.RecordBatch.from_pydict({"order": [1, 2], "customer": [2**40, 1]})
    assert apply(customers(tmp_path), decoded(rows)).rows["customer_name"].to_pylist() == [
        None,
        "Ann",
    ]


def test_columns_that_map_to_others_are_refused(tmp_path: Path) -> None:
    """A table with column mapping is refused, even if its protocol has no features.

    Its files have other column names, so a reader that looks for the table's names finds nulls.
    """
    lookup = customers(tmp_path)
    entry = tmp_path / "customers" / "_delta_log" / f"{0:020d}.json"
    entry.write_text(
        entry.read_text().replace(
            '"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'
        )
    )
    with pytest.raises(UnreachableError, match="columnMapping"):
        lookup.source.version()


def test_a_version_without_the_column_is_refused(tmp_path: Path) -> None:
    """A pinned version without the column is refused with the advice to pin again.

    The table got the column later.
    """
    for store in (STORES["delta"], STORES["iceberg"]):
        folder = tmp_path / str(id(store))
        store.write(folder, CUSTOMERS.drop_columns(["born"]))
        version = source(store, folder).version()
        if store is STORES["delta"]:
            write_deltalake(folder, CUSTOMERS, mode="append", schema_mode="merge")
        else:
            table = _catalog(folder).load_table("lake.customers")
            with table.update_schema() as update:
                update.union_by_name(CUSTOMERS.schema)
        lookup = Lookup("c", (("customer", "id"),), (("born", "born"),), source(store, folder))
        with pytest.raises(RefusedError, match="has no column born") as refused:
            apply(lookup.pinned({"c": version}), decoded(ORDERS))
        assert "--fresh-lookups" in refused.value.advice


_UTC, _MOMENT = pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 5, 23, 30, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("newest_values", "older_values"),
    [
        (pa.array([7]), pa.array(["007"])),
        (pa.array(["x"]), pa.array([7])),
        (pa.array([True]), pa.array([5])),
        (pa.array([1]), pa.array([True])),
        (pa.array([1.0]), pa.array([7])),
        (pa.array([1], pa.int8()), pa.array([300])),
        (pa.array([1], pa.float32()), pa.array([16777217.0])),
        (pa.array(["x"]), pa.array([2e20])),
        (pa.array(["x"]), pa.array([b"x"])),
        (pa.array([Decimal("0.10")]), pa.array([1e-9])),
        (pa.array([Decimal("0.100")]), pa.array([Decimal("0.10")])),
        (pa.array([_MOMENT.date()]), pa.array([_MOMENT], _UTC)),
        (pa.array([1]), pa.array([_MOMENT], _UTC)),
        (pa.array([_MOMENT], _UTC), pa.array([_MOMENT.replace(tzinfo=None)], pa.timestamp("us"))),
        (pa.array([[1]]), pa.array([["007"]])),
        (pa.array([{"a": 1}]), pa.array([{"a": "007"}])),
        (pa.array([{"a": 1, "b": 1}]), pa.array([{"a": 1}])),
        (pa.array([{"a": 1}]), pa.array([{"b": 1}])),
    ],
    ids=lambda values: str(values.type),
)
def test_a_value_of_another_type_is_no_value_of_the_newest(
    newest_values: pa.Array, older_values: pa.Array, tmp_path: Path
) -> None:
    """A value in an older version or another file isn't cast if the cast would change it.

    This holds for taken columns and for keys.
    """
    older, newer = (
        pa.table({"id": [1], "its": values}) for values in (older_values, newest_values)
    )
    _to_delta(tmp_path / "versions", older)
    versions = source(STORES["delta"], tmp_path / "versions")
    pin = versions.version()
    write_deltalake(tmp_path / "versions", newer, mode="overwrite", schema_mode="overwrite")
    for rows in (newer, older):
        _to_parquet(tmp_path / "files", rows)
    files = source(STORES["parquet"], tmp_path / "files")
    for versioned_source, version in ((versions, pin), (files, files.version())):
        for key, take in (("id", "its"), ("its", "id")):
            rows = pa.RecordBatch.from_arrays([newer[key].combine_chunks()], ["customer"])
            lookup = Lookup("t", (("customer", key),), ((take, "taken"),), versioned_source)
            with pytest.raises(RefusedError, match="has a value in its that is no ") as refused:
                apply(lookup.pinned({"t": version}), decoded(rows))
            assert "A column needs the type that it has in" in refused.value.advice


@pytest.mark.parametrize(
    ("newer_values", "older_values"),
    [
        (pa.array([1]), pa.array([7], pa.int8())),
        (pa.array([1], pa.int8()), pa.array([7])),
        (pa.array([1.0]), pa.array([0.5], pa.float32())),
        (pa.array([Decimal("1.10")], pa.decimal128(9, 2)), pa.array([Decimal("1.10")])),
        (pa.array(["x"]), pa.array(["007"]).dictionary_encode()),
        (pa.array([1]), pa.array([None], pa.null())),
        (pa.array([[1]]), pa.array([[7]], pa.list_(pa.int16(), 1))),
        (
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            pa.array([[("b", 2)]], pa.map_(pa.string(), pa.int32())),
        ),
    ],
    ids=lambda values: str(values.type),
)
def test_a_value_that_stays_the_same_may_have_another_type(
    newer_values: pa.Array, older_values: pa.Array, tmp_path: Path
) -> None:
    """A value may have another type that keeps it unchanged.

    These are numbers of another width, and types that Arrow has in several forms. Maps can be
    looked up.
    """
    for n, values in enumerate((newer_values, older_values)):
        _to_parquet(tmp_path, pa.table({"id": [n, n], "its": pa.concat_arrays([values] * 2)}))
    lookup = Lookup(
        "t", (("customer", "id"),), (("its", "its"),), source(STORES["parquet"], tmp_path)
    )
    rows = pa.RecordBatch.from_pydict({"customer": [1, 0]})
    output_column = apply(replace(lookup, first_by=("id", True)), decoded(rows)).rows["its"]
    assert output_column.to_pylist() == [*older_values.to_pylist(), *newer_values.to_pylist()]


def test_files_of_the_same_size_and_time_are_others_by_their_footers(tmp_path: Path) -> None:
    """A file that was replaced with the same size and time is detected by its footer.

    A program may set a file's time. A pin of an earlier release without footers stays valid.
    """
    folder = tmp_path / "t"
    _to_parquet(folder, pa.table({"id": [1]}))
    (file,) = folder.iterdir()
    old_stat, files = file.stat(), ParquetFiles(str(folder))
    pin = files.newest()
    pq.write_table(pa.table({"id": [2]}), file)
    os.utime(file, ns=(old_stat.st_atime_ns, old_stat.st_mtime_ns))
    assert file.stat().st_size == old_stat.st_size
    with pytest.raises(RefusedError, match="are others than those"):
        next(files.read(pin, ["id"]))
    (batch,) = files.read(pin.partition("/")[0], ["id"])
    assert batch.to_pydict() == {"id": [2]}


def test_files_in_a_bucket_are_others_by_their_etags(s3: S3Server) -> None:
    """A replaced file in a bucket is detected by its ETag, with any size, footer and time."""
    bucket = s3.bucket()
    versions = []
    for page in (b"1", b"2"):
        content = b"PAR1" + page + b"footer" + (6).to_bytes(4, "little") + b"PAR1"
        s3.client().put_object(Bucket=bucket.removeprefix("s3://"), Key="a.parquet", Body=content)
        versions.append(ParquetFiles(bucket).newest().partition("/")[2])
    assert versions[0] != versions[1]


def test_the_footers_of_files_are_read_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The footers of files are read concurrently, because an object store takes time for each.

    In this test the first read waits for the last one.
    """
    for _ in range(8):
        _to_parquet(tmp_path / "t", CUSTOMERS)
    together, real = Barrier(8), parquet.read_footer

    def footer(source: pa.NativeFile) -> bytes:
        together.wait(60)
        return real(source)

    files = ParquetFiles(str(tmp_path / "t"))
    version = files.newest()
    monkeypatch.setattr(parquet, "read_footer", footer)
    assert files.newest() == version


def test_files_that_change_while_they_are_read_are_refused(tmp_path: Path) -> None:
    """Files that change while they are read are refused, because two states would be mixed."""
    folder = tmp_path / "t"
    for _ in range(2):
        _to_parquet(folder, CUSTOMERS)
    files = ParquetFiles(str(folder))
    batches = files.read(files.newest(), ["id"])
    next(batches)
    _to_parquet(folder, CUSTOMERS)
    with pytest.raises(RefusedError, match="are others than those"):
        list(batches)


def test_types_that_no_table_has_are_left_out(tmp_path: Path) -> None:
    """Columns with types that a table can't hold are left out. Other columns can be looked up."""
    wide = pa.array([1, 2], pa.decimal256(50, 2))
    source_table = pa.table(
        {
            "id": pa.array([1, 2]),
            "wide": wide,
            "at": pa.array([0, 1], pa.timestamp("ns")),
            "text": pa.array(["a", "b"]).dictionary_encode(),
            "\u0001": [1, 2],
        }
    )
    _to_parquet(tmp_path / "t", source_table)
    parquet_source = source(STORES["parquet"], tmp_path / "t")
    assert parquet_source.schema().names == ["id", "text", "\u0001"]
    rows = pa.RecordBatch.from_pydict({"customer": [2]})
    output = apply(
        Lookup("c", (("customer", "id"),), (("text", "t"),), parquet_source), decoded(rows)
    )
    assert output.rows["t"].to_pylist() == ["b"]
