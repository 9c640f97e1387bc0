"""The metadata of a window's event: entries, order and texts."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pandera.polars as pa
import polars as pl
import pytest

from tests.assets.world import START, MemorySource, World, hour
from tests.shape.readme import section
from windrow.assets.columns import column_schema, declared_schema
from windrow.assets.dependencies import Clock
from windrow.assets.description import code, table_description
from windrow.assets.factory import kafka_table
from windrow.assets.metadata import ENTRIES, window_metadata
from windrow.assets.names import SPARK_KEY, kafka_key
from windrow.assets.topic import topic_assets
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.receipt import Committed, Counts
from windrow.ingest.runner.context import Result
from windrow.ingest.schema.columns import Columns

pytestmark = pytest.mark.some(8, of="tests")

FIRST = ["summary", "rows_written", "dead_letters", "skipped", "late", "early", "completeness"]


def table_asset(world: World) -> dg.AssetSpec:
    [asset_spec] = [
        s for s in world.defs.resolve_all_asset_specs() if s.key == dg.AssetKey(["things"])
    ]
    return asset_spec


def columns_of(schema: dg.TableSchema) -> dict[str, tuple[bool, list[str]]]:
    return {c.name: (c.constraints.nullable, list(c.constraints.other)) for c in schema.columns}


def entries_of(world: World, n: int = 0) -> dict[str, Any]:
    return {name: value.value for name, value in world.metadata(n).items()}


def test_what_matters_comes_first(world: World) -> None:
    """The summary, the rows and possible problems are the first entries, in this order.

    Numbers are shown even if they are zero, so that Dagster's plots have no gaps.
    """
    world.fill(2)
    world.send(1, 1, b"poison")
    world.send(0, 1, b'{"id": 1}')
    assert world.run(0).success
    assert world.run(1).success
    for metadata in (world.metadata(0), world.metadata(1)):
        assert next(iter(metadata)) == "summary"
        assert [name for name in metadata if name in FIRST] == FIRST
        assert "recovered" not in metadata
        assert not {"deletes", "lookup_hits", "dead_replayed", "batch"} & set(metadata)
    first, second = (
        {n for n, v in world.metadata(n).items() if isinstance(v.value, int | float)}
        for n in (0, 1)
    )
    assert (first, entries_of(world, 1)["dead_letters"]) == (second, 1)


def test_every_entry_is_explained(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The docs page explains each entry: ten important ones first, then the others.

    Each part has the order of the UI. Rare entries are explained, too.
    """
    source = {
        "bootstrap_servers": "127.0.0.1:9",
        "topic": "shop.things",
        "offsets_group": "readers",
    }
    world = World(tmp_path, instance, source=source)
    world.fill(2)
    world.send(1, 30, b"poison")
    world.send(1, 31, b'{"id": 1}')
    assert world.run(1).success
    assert world.run(1, on_committed="replace").success
    assert world.run(1).success
    entries = {
        name for event in world.plain_events() for name in event if not name.startswith("dagster/")
    }
    assert {"generation", "recovered", "group_offsets", "dead_reasons"} <= entries <= set(ENTRIES)
    page = (Path(__file__).parents[2] / "docs" / "dagster.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `(\w+)` \|", section("What an event says", page), re.MULTILINE)
    first, others = explained[:10], explained[10:]
    assert sorted(explained) == sorted(ENTRIES)
    assert [first, others] == [
        [name for name in ENTRIES if name in part] for part in (first, others)
    ]
    assert "windrow help dagster" in (table_asset(world).description or "")


def test_the_window_is_told_as_the_command_takes_it(world: World) -> None:
    """The window's start and end are one entry, in the form of `--window`."""
    world.fill(1)
    assert world.run(0).success
    assert entries_of(world)["window"] == "2026-01-05T00:00:00Z/2026-01-05T01:00:00Z"


def test_lag_is_of_the_newest_window_only(world: World) -> None:
    """A window that is reported again after later commits shows no lag."""
    world.fill(3)
    assert world.run(0, 2).success
    world.fill(1, first=3)
    assert world.run(0).success
    assert not {"lag", "lag_records", "lag_seconds"} & set(world.metadata(0))
    assert world.run(2).success
    assert entries_of(world, 2)["lag_records"] == 60


def test_columns_keep_their_checks(world: World) -> None:
    """Each event has the columns with their checks and descriptions, like the definition.

    Dagster shows those of the newest event.
    """
    declared = table_asset(world).metadata["dagster/column_schema"]
    assert columns_of(declared)["id"] == (False, ["greater_than_or_equal_to(0)"])
    assert columns_of(declared)["_offset"] == (False, [])
    world.fill(1)
    assert world.run(0).success
    shown_schema = entries_of(world)["dagster/column_schema"]
    assert shown_schema == declared


class Before(pa.DataFrameModel):
    """An older version of the schema."""

    id: pl.Int64 = pa.Field(ge=0)
    kind: pl.String = pa.Field(isin=["a"])


class Now(pa.DataFrameModel):
    """The current version of the schema, with another check, another type and another column."""

    id: pl.Int64 = pa.Field(ge=10)
    kind: pl.String = pa.Field(nullable=True, isin=["a", "b"])
    more: pl.Int64 = pa.Field(nullable=True)

    @pa.dataframe_check
    def sane(self, data: Any) -> Any:
        """Checks whole rows."""
        raise NotImplementedError


def test_columns_of_an_older_schema_claim_nothing() -> None:
    """A window that was read with an older schema shows only the checks of unchanged columns."""
    now = Columns.of(Now)
    older_schema = column_schema(Columns.of(Before).described(), now, DEFAULT)
    assert {
        name: constraints
        for name, (_, constraints) in columns_of(older_schema).items()
        if not name.startswith("_")
    } == {
        "id": columns_of(declared_schema(now, DEFAULT))["id"][1],
        "kind": [],
    }
    assert list(older_schema.constraints.other) == []
    assert list(column_schema(now.described(), now, DEFAULT).constraints.other) == ["sane"]


def test_how_offsets_were_found_is_one_word(world: World) -> None:
    """The text of `resolved` has no space, and columns with only zeros are left out."""
    world.fill(2)
    assert world.run(0).success
    lines = [r.data for r in world.metadata(0)["offsets"].records]
    assert [line["resolved"] for line in lines] == ["timestamps"] * 2
    assert not any("invisible" in line or "skipped" in line for line in lines)
    world.now = hour(2, 6)
    assert world.run(1).success
    assert [r.data["resolved"] for r in world.metadata(1)["offsets"].records] == [
        "timestamps→log-end"
    ] * 2


@pytest.mark.parametrize("text", ["shop\\..*_v[0-9]*", "a`b", "``", "*_*"])
def test_a_code_span_holds_any_text(text: str) -> None:
    """A code span shows any text unchanged: its fence isn't part of the text."""
    fenced = code(text)
    fence = fenced[: len(fenced) - len(fenced.lstrip("`"))]
    assert fenced.endswith(fence)
    assert fenced[len(fence) : -len(fence)].strip(" ") == text
    assert fence not in text.split(" ")


def test_patterns_are_shown_as_they_are(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Patterns and cron grids are in code spans, because Markdown would change their stars."""
    source = {"bootstrap_servers": "127.0.0.1:9", "topic_pattern": r"shop\.*_*"}
    window = {"grid": "*/15 * * * *", "start": START, "delay": timedelta(minutes=1)}
    world = World(tmp_path, instance, source=source, window=window)
    assert (
        table_description(world.spec).splitlines()[2]
        == r"topics matching `shop\.*_*`: one window at a time (`*/15 * * * *`), exactly once"
    )
    assert [asset.description for asset in topic_assets(world.spec)] == [
        r"Kafka topics matching `shop\.*_*`"
    ]


def test_no_two_nodes_are_named_alike(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """No two assets of a pipeline have the same last part of the key, which Dagster's
    graph shows.
    """
    world = World(
        tmp_path,
        instance,
        source={"bootstrap_servers": "127.0.0.1:9", "topic_pattern": r"shop\..*"},
    )
    names = [s.key.path[-1] for s in world.defs.resolve_all_asset_specs()]
    assert sorted(names) == ["things", "things_dead", "topics-of-things"]


def test_rows_and_messages_are_told_apart_where_they_differ(world: World) -> None:
    """A window whose messages became more or fewer rows shows both numbers."""
    world.fill(1)
    assert world.run(0).success
    assert entries_of(world)["filtered"] == 0
    receipt_before = world.receipt_of(0)
    split, *others = receipt_before.splits
    fewer = msgspec.structs.replace(
        split, valid=split.valid - 2, filtered=2, rows=50, rows_staged=50
    )
    receipt = msgspec.structs.replace(
        receipt_before, splits=(fewer, *others), counts=Counts.total([fewer, *others])
    )
    metadata = window_metadata(
        world.spec, world.columns, Result(Committed(receipt, 1), recovered=False)
    )
    rows = 50 + sum(s.rows for s in others)
    assert (metadata["rows_written"], metadata["dagster/partition_row_count"]) == (rows, rows)
    assert (metadata["messages_read"], metadata["filtered"]) == (60, 2)
    first, *_ = metadata["offsets"].records
    assert first.data["rows"] == 50


def test_the_asset_says_where_it_is_from_and_where_it_is(world: World, tmp_path: Path) -> None:
    """The asset's description begins with the model's docstring.

    The table's place can be copied, kinds have Dagster's icons, and spec and schema can be
    opened.
    """
    file = tmp_path / "defs.yaml"
    world.spec = world.spec.model_copy(update={"spec_file": file})
    world.load()
    [spec] = [s for s in world.defs.resolve_all_asset_specs() if s.key == dg.AssetKey(["things"])]
    assert (spec.description or "").splitlines()[0] == "The least that can go wrong."
    assert spec.metadata["dagster/uri"] == world.spec.sink_path()
    assert spec.kinds == {"kafka", "spark", "deltalake"}
    opened = spec.metadata["dagster/code_references"].code_references
    assert [Path(reference.file_path) for reference in opened] == [
        file,
        Path(__file__).parent / "things.py",
    ]


def test_a_run_says_what_it_reads(world: World) -> None:
    """The run's log says when windows begin to be read."""
    world.fill(2)
    result = world.run(0, 1)
    log_lines = [entry.user_message for entry in world.instance.all_logs(result.run_id)]
    assert "Reading 2 windows from 2026-01-05T00:00:00Z on: 4 splits" in log_lines


def test_the_newest_event_shows_the_whole_table(world: World, tmp_path: Path) -> None:
    """The last event of a run has the table's total rows and bytes, from the table's log."""
    resources = {kafka_key(world.spec): MemorySource(world), SPARK_KEY: world.tasks}
    world.defs = kafka_table(world.spec, resources, Clock(lambda: world.now, world.sleep))
    world.fill(2)
    assert world.run(0, 1).success
    assert "dagster/row_count" not in world.metadata(0)
    shown = world.metadata(1)
    files = list(Path(world.spec.sink_path()).rglob("*.parquet"))
    assert shown["dagster/row_count"].value == 120
    assert shown["dagster/size_bytes"].value == sum(
        f.stat().st_size for f in files if "_windrow" not in f.parts
    )
