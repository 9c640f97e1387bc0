"""The parts of the demo: the generated day, its check, and its home folder."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import polars as pl
import pyarrow as pa
import pytest

from windrow.assets.demo.__main__ import Kind
from windrow.assets.demo.customers import CHANGES, THERE_BEFORE, CustomerMessage, changes
from windrow.assets.demo.orders import PARTITIONS, TOMBSTONES, OrderMessage, day
from windrow.assets.demo.place import DemoHome, last_full_day
from windrow.assets.demo.poison import POISON
from windrow.assets.demo.produce import ORDERS as ORDERS_TOPIC
from windrow.assets.demo.produce import write_customers
from windrow.assets.demo.run import CUSTOMER, Verdict, check, check_customers
from windrow.assets.demo.sinks import READERS, SINKS
from windrow.ingest.config.load import load_spec
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.kinds import make_decoder
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.model.boundary import TopicSeen
from windrow.ingest.model.receipt import SplitCounts, Staged
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.sinks.kinds import KINDS
from windrow.ingest.testing.contracts.values import messages_with
from windrow.ingest.testing.contracts.windows import plan_of, receipt, window
from windrow.ingest.transform.validate import Validate

START = datetime(2026, 1, 5, tzinfo=UTC)
ORDERS = Path(__file__).parents[2] / "assets" / "defs" / "orders"
CUSTOMERS = ORDERS.parent / "customers" / "defs.yaml"


@pytest.fixture(scope="module")
def messages() -> list[OrderMessage]:
    return list(day(START, 2400))


def test_the_day_holds_what_it_promises(messages: list[OrderMessage]) -> None:
    """The day has each order once, 25 poison messages, tombstones, null keys and aborted orders.

    One message has a timestamp in 2099.
    """
    kinds = Counter(m.kind for m in messages)
    assert (kinds["order"], kinds["poison"], kinds["tombstone"]) == (2400, 25, TOMBSTONES)
    assert kinds["aborted"] == 5
    assert {m.order_id for m in messages if m.kind == "order"} == set(range(1, 2401))
    assert [
        m.order_id
        for m in messages
        if m.timestamp > int((START + timedelta(days=2)).timestamp() * 1000)
    ] == [601]
    assert {m.partition for m in messages} == set(range(PARTITIONS))
    assert any(m.key is None for m in messages)
    assert {m.through for m in messages} == {"plain", "commit", "abort"}
    assert len({value for _, value in POISON}) == 25


def test_the_day_is_the_same_each_time(messages: list[OrderMessage]) -> None:
    """The same seed generates the same messages."""
    assert list(day(START, 2400)) == messages


def test_some_orders_are_late(messages: list[OrderMessage]) -> None:
    """Between 1% and 3% of the orders come after younger ones, and none is from before the day."""
    stamps = [m.timestamp for m in messages if m.kind == "order" and m.order_id != 601]
    late = sum(later < earlier for earlier, later in pairwise(stamps))
    assert 0.01 < late / len(stamps) < 0.03
    assert min(stamps) >= int(START.timestamp() * 1000)


def decode(values: list[bytes | None]) -> tuple[int, list[str]]:
    """Returns the number of rows, and the reasons of the dead letters."""
    same = {
        "topic": "t",
        "partition": 0,
        "timestamp": START,
        "timestamp_type": "CreateTime",
        "key": None,
        "headers": [],
    }
    messages = pa.RecordBatch.from_pylist(
        [same | {"offset": i, "value": v} for i, v in enumerate(values)], schema=MESSAGES
    )
    validated = Validate(ModelReference("schema.py:Order", ORDERS)).open()(
        RowDecoder(ModelReference("schema.py:Order", ORDERS), JsonEncoding()).open()(messages),
        messages,
    )
    return validated.rows.num_rows, validated.dead_reason.to_pylist()


def test_each_poison_message_is_refused_by_itself() -> None:
    """Each of the 25 poison messages becomes a dead letter, and the good orders don't."""
    good = next(m.value for m in day(START, 480) if m.kind == "order")
    rows, reasons = decode([good, *(value for _, value in POISON), good])
    assert (rows, len(reasons)) == (2, 25)


def test_every_order_is_a_row(messages: list[OrderMessage]) -> None:
    """The schema accepts every order of the day."""
    orders = [m.value for m in messages if m.kind == "order"]
    assert decode(orders) == (len(orders), [])


HOUR = window(0)
PLACE = {"_topic": ORDERS_TOPIC, "_partition": 0, "_window": HOUR.key}
PLAN = plan_of(
    SimpleNamespace(identity="table"),  # type: ignore[arg-type]  # only its identity is used
    HOUR,
    (0, 4),
    [TopicSeen(ORDERS_TOPIC, "topic-id", 1)],
)
COUNTS = SplitCounts(
    ORDERS_TOPIC, 0, 0, 4, 4, 3, 3, 2, 1, 0, 2, 1, 1, rows=2, reasons=(("not_json", 1),)
)
RECEIPT = receipt(PLAN, [Staged(PLAN.splits[0], COUNTS, (), ())], 0, "a1")
ROWS = pa.Table.from_pylist([PLACE | {"_offset": n, "order_id": n + 1} for n in (1, 0)])
DEAD = pa.Table.from_pylist([PLACE | {"_offset": 2}])
ABORTED = pa.Table.from_pylist([PLACE | {"_offset": 3, "order_id": 10_000_000}])


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    file = tmp_path / "manifest.parquet"
    kinds = ["order", "order", "poison", "aborted"]
    columns = {
        "partition": pl.Series([0] * 4, dtype=pl.Int32),
        "offset": [0, 1, 2, 3],
        "kind": kinds,
        "order_id": [1, 2, None, 10_000_000],
    }
    pl.DataFrame(columns).write_parquet(file)
    return file


def test_the_check_passes_what_is_right(manifest: Path) -> None:
    """The check finds nothing wrong if each order and each dead letter is there once."""
    assert check(manifest, ROWS, [DEAD], [RECEIPT]) == Verdict(2, 1, 1, ())


@pytest.mark.parametrize(
    ("rows", "dead", "complaint"),
    [
        (ROWS.slice(0, 1), [DEAD], "1 lost: shop.orders[0]@0"),
        (pa.concat_tables([ROWS, ROWS.slice(1)]), [DEAD], "1 duplicated: shop.orders[0]@0"),
        (ROWS, [], "1 lost: shop.orders[0]@2"),
        (ROWS, [DEAD, DEAD], "1 duplicated: shop.orders[0]@2"),
        (ROWS.set_column(4, "order_id", [[2, 3]]), [DEAD], "1 invented: shop.orders[0]@0"),
        (pa.concat_tables([ROWS, ABORTED]), [DEAD], "1 invented: shop.orders[0]@3"),
    ],
)
def test_the_check_names_what_is_wrong(
    manifest: Path, rows: pa.Table, dead: list[pa.Table], complaint: str
) -> None:
    """The check names a lost, doubled or invented order or dead letter with its place."""
    (mistake,) = check(manifest, rows, dead, [RECEIPT]).mistakes
    assert mistake.startswith(complaint)


def test_every_kind_of_sink_has_its_demo() -> None:
    """`make demo SINK=...` supports every kind of sink, and can read its rows."""
    assert {name.partition("-")[0] for name in SINKS} == KINDS.keys() == READERS.keys()
    assert get_args(Kind) == tuple(SINKS)


@pytest.fixture(scope="module")
def customer_changes() -> list[CustomerMessage]:
    return list(changes(START))


def test_the_changes_are_of_every_kind(customer_changes: list[CustomerMessage]) -> None:
    """The changes are a snapshot, then inserts, updates, and deletes with their tombstones.

    Each customer is in one partition. The same seed generates the same changes.
    """
    ops = Counter(None if m.value is None else json.loads(m.value)["op"] for m in customer_changes)
    assert ops["r"] == THERE_BEFORE
    assert min(ops["c"], ops["u"], ops["d"]) > CHANGES // 20
    assert ops[None] == ops["d"]
    assert len({(m.customer, m.partition) for m in customer_changes}) == len(
        {m.customer for m in customer_changes}
    )
    assert {m.partition for m in customer_changes} == set(range(PARTITIONS))
    assert list(changes(START)) == customer_changes


def test_the_table_of_customers_is_their_fold(
    customer_changes: list[CustomerMessage], tmp_path: Path
) -> None:
    """The decoded changes, applied one after the other, leave the table that the check expects.

    No message is refused. Wrong tables are found.
    """
    spec = load_spec(CUSTOMERS)
    assert spec.sink.key is not None
    decoded_batch = make_decoder(spec.decode, spec.folder, spec.sink.key.deletes).open()(
        messages_with([m.value for m in customer_changes])
    )
    assert (len(decoded_batch.dead_index), decoded_batch.dropped) == (
        0,
        sum(m.value is None for m in customer_changes),
    )
    assert decoded_batch.deletes is not None
    table: dict[str, dict[str, object]] = {}
    steps = [
        (index, 0, key)
        for index, key in zip(
            decoded_batch.deletes.index.to_pylist(),
            decoded_batch.deletes.keys.to_pylist(),
            strict=True,
        )
    ]
    steps += [
        (index, 1, row)
        for index, row in zip(
            decoded_batch.row_index.to_pylist(), decoded_batch.rows.to_pylist(), strict=True
        )
    ]
    for _, is_upsert, row in sorted(steps, key=lambda step: step[:2]):
        table.pop(row["customer"], None)
        table.update({row["customer"]: row} if is_upsert else {})
    manifest = tmp_path / "customers.parquet"
    write_customers(manifest, customer_changes, list(range(len(customer_changes))))
    rows = pa.Table.from_pylist(list(table.values()), schema=decoded_batch.rows.schema).select(
        CUSTOMER
    )
    verdict = check_customers(manifest, rows)
    assert (verdict.changes, verdict.customers, verdict.mistakes) == (
        len(customer_changes),
        rows.num_rows,
        (),
    )
    renamed_rows = rows.set_column(
        1, rows.field("name"), [["Nobody", *rows["name"].to_pylist()[1:]]]
    )
    for wrong_rows, complaint in (
        (rows.slice(1), "1 customers are lost, or don't have their last row"),
        (renamed_rows, "1 customers are lost, or don't have their last row"),
        (pa.concat_tables([rows, rows.slice(0, 1)]), "1 customers are there more than once"),
        (pa.concat_tables([rows, renamed_rows.slice(0, 1)]), "1 customers should not be there"),
    ):
        assert any(
            mistake.startswith(complaint)
            for mistake in check_customers(manifest, wrong_rows).mistakes
        ), complaint


@pytest.mark.parametrize(
    ("now", "start"),
    [
        ("2026-01-06T12:30:00+00:00", "2026-01-05T12:00:00+00:00"),
        ("2026-01-06T12:01:00+00:00", "2026-01-05T11:00:00+00:00"),
    ],
)
def test_the_last_window_is_closed_for_good(now: str, start: str) -> None:
    """The demo's day ended so long ago that its last window can be run immediately."""
    assert last_full_day(datetime.fromisoformat(now)) == datetime.fromisoformat(start)


def test_the_environment_file_keeps_other_lines(tmp_path: Path) -> None:
    """Writing the demo's variables replaces older ones, and keeps the user's own lines."""
    demo_home = DemoHome(tmp_path)
    demo_home.env_file.write_text("MINE=1\nORDERS_START='2020-01-01T00:00:00Z'\n")
    demo_home.write_env("127.0.0.1:1", START)
    lines = demo_home.env_file.read_text().splitlines()
    assert lines[0] == "MINE=1"
    assert [line for line in lines if line.startswith("ORDERS_START")] == [
        "ORDERS_START='2026-01-05T00:00:00Z'"
    ]
    assert demo_home.start() == START


@pytest.mark.parametrize(("own_lines", "remaining_text"), [("", None), ("MINE=1\n", "MINE=1\n")])
def test_what_the_demo_wrote_into_the_environment_file_goes(
    tmp_path: Path, own_lines: str, remaining_text: str | None
) -> None:
    """`make clean` removes the demo's lines from the environment file.

    It removes the file if nothing else is in it. A second call changes nothing.
    """
    demo_home = DemoHome(tmp_path)
    demo_home.env_file.write_text(own_lines)
    demo_home.write_env("127.0.0.1:1", START)
    for _ in range(2):
        demo_home.forget()
        assert (
            demo_home.env_file.read_text() if demo_home.env_file.exists() else None
        ) == remaining_text


def test_an_interrupted_set_up_is_begun_anew(tmp_path: Path) -> None:
    """An interrupted set-up starts again, because the manifest is written last."""
    demo_home = DemoHome(tmp_path)
    demo_home.kafka.mkdir(parents=True)
    demo_home.customers.touch()
    demo_home.write_env("127.0.0.1:1", START)
    assert not demo_home.is_set_up()
    demo_home.clear()
    assert not demo_home.kafka.exists()
    assert (demo_home.dagster_home / "dagster.yaml").exists()
