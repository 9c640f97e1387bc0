"""The contents of windows on real Kafka, and refusals before anything is read.

The topics have markers, future and old timestamps, and malformed messages.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from tests.integration.harness import PipelineSetup, millis, read_visible, table_version, verdict
from tests.kafka.produce import (
    Put,
    create_topic,
    delete_records,
    delete_topic,
    produce,
    transaction,
)
from windrow.ingest.admin.rebuild import rebuild
from windrow.ingest.admin.verify import verify
from windrow.ingest.errors import (
    DataLossError,
    DeadLetterLimitError,
    GridError,
    IdentityError,
    NotClosedError,
    OverlapError,
    OwnerError,
    SchemaChangedError,
    SpecError,
    WindrowError,
)
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.run_windows import run

pytestmark = pytest.mark.broker


def thing(i: int) -> bytes:
    """Returns a message's value."""
    return json.dumps({"id": i, "name": None}).encode()


@pytest.fixture
def setup(kafka: str, tmp_path: Path) -> PipelineSetup:
    """A topic of one partition, with a new table and ledger."""
    return PipelineSetup(kafka, create_topic(kafka), tmp_path)


def fill(setup: PipelineSetup, hours: range, messages_per_hour: int = 30) -> None:
    """Writes plain messages, spread over each hour."""
    produce(
        setup.bootstrap,
        setup.topic,
        [
            Put(thing(h * 1000 + i), millis(h, i * 59 // messages_per_hour))
            for h in hours
            for i in range(messages_per_hour)
        ],
    )


def ids(setup: PipelineSetup, n: int) -> list[int]:
    """Returns the ids of the table's n-th window, in the order of offsets."""
    rows = DeltaTable(str(setup.folder / "things")).to_pyarrow_table(
        filters=[("_window", "=", setup.window(n).key)]
    )
    return [
        i for _, i in sorted(zip(rows["_offset"].to_pylist(), rows["id"].to_pylist(), strict=True))
    ]


def refusal_of(
    setup: PipelineSetup, kind: type[WindrowError], n: int = 1, request: Request | None = None
) -> str:
    """Returns the text of the error that a run raises, and asserts that the table is unchanged."""
    version_before = (
        table_version(setup) if DeltaTable.is_deltatable(str(setup.folder / "things")) else None
    )
    with pytest.raises(kind) as caught:
        setup.run(n, request)
    assert caught.type is kind, caught.value
    assert version_before is None or table_version(setup) == version_before
    return str(caught.value)


def test_a_window_of_nothing_is_a_success(setup: PipelineSetup) -> None:
    """An empty window has 0 rows and a receipt, on an empty topic and between busy hours."""
    assert setup.run(0).committed.receipt.counts.read == 0
    fill(setup, range(1, 2))
    fill(setup, range(3, 4))
    for n in (1, 2, 3):
        setup.run(n)
    assert (len(ids(setup, 1)), len(ids(setup, 2)), len(ids(setup, 3))) == (30, 0, 30)
    pipeline = setup.pipeline()
    assert {c.receipt.window for c in pipeline.sink.receipts()} == {
        setup.window(n) for n in range(4)
    }


def test_a_window_of_markers_only_is_a_success(setup: PipelineSetup) -> None:
    """A window that contains only aborted transactions has 0 rows and a receipt.

    Their messages and markers are at the end of the log, and are counted.
    """
    fill(setup, range(1))
    setup.run(0)
    transaction(
        setup.bootstrap, setup.topic, [Put(thing(i), millis(1, i)) for i in range(5)], commit=False
    )
    transaction(
        setup.bootstrap, setup.topic, [Put(thing(i), millis(1, i)) for i in range(5)], commit=False
    )
    counts = setup.run(1).committed.receipt.counts
    assert (counts.read, counts.valid, counts.invisible, counts.aborted) == (0, 0, 12, 10)


def test_a_message_stamped_2099_costs_no_later_window(setup: PipelineSetup) -> None:
    """A message with a timestamp in 2099 is in the window of its position in the log.

    Each later hour has its own rows.
    """
    fill(setup, range(1, 3))
    produce(setup.bootstrap, setup.topic, [Put(thing(99), 4_070_908_800_000)])
    fill(setup, range(3, 6))
    for n in (5, 3, 1, 4, 2):
        setup.run(n)
    assert [len([i for i in ids(setup, n) if i // 1000 == n]) for n in range(1, 6)] == [30] * 5
    report = verdict(setup, read_visible(setup.bootstrap, setup.topic))
    assert report.ok, report


def test_history_written_by_transactions_lands_in_its_hours(setup: PipelineSetup) -> None:
    """Old messages in transactions are in their own hours, although the markers are new."""
    for h in range(1, 7):
        transaction(
            setup.bootstrap,
            setup.topic,
            [Put(thing(h * 1000 + i), millis(h, i)) for i in range(40)],
            commit=True,
        )
        transaction(setup.bootstrap, setup.topic, [Put(thing(-1), millis(h, 50))], commit=False)
    for n in (6, 2, 1, 5, 3, 4):
        setup.run(n)
    assert [ids(setup, n) for n in range(1, 7)] == [
        [n * 1000 + i for i in range(40)] for n in range(1, 7)
    ]


def test_a_poison_message_costs_that_message_only(setup: PipelineSetup) -> None:
    """A malformed message is one dead letter with place and reason, and its neighbours are rows."""
    fill(setup, range(1, 2))
    produce(setup.bootstrap, setup.topic, [Put(b'{"id": "secret-payload"}', millis(1, 59))])
    fill(setup, range(2, 3))
    receipt = setup.run(1).committed.receipt
    assert (receipt.counts.valid, receipt.counts.dead) == (30, 1)
    assert receipt.splits[0].first_dead[0][0] == 30
    report = verdict(
        setup,
        {
            tp: {o: i for o, i in id_by_offset.items() if o <= 30}
            for tp, id_by_offset in read_visible(setup.bootstrap, setup.topic).items()
        },
    )
    assert report.ok, report


def test_too_many_dead_letters_refuse_the_window_without_a_payload(setup: PipelineSetup) -> None:
    """Too many dead letters refuse the window, and nothing becomes visible.

    The error has reasons and places, and no payload.
    """
    fill(setup, range(1, 2))
    produce(setup.bootstrap, setup.topic, [Put(b'{"id": "secret-payload"}', millis(1, 59))] * 3)
    strict = PipelineSetup(
        setup.bootstrap,
        setup.topic,
        setup.folder,
        {"limits": {"max_dead_ratio": None, "max_dead_count": 2}},
    )
    text = refusal_of(strict, DeadLetterLimitError)
    assert "3 of 33" in text
    assert f"{setup.topic}[0]@30" in text
    assert "secret" not in text
    assert ids(setup, 1) == []


def test_a_retry_with_a_corrected_schema_never_leaves_a_message_in_both_tables(
    setup: PipelineSetup,
) -> None:
    """A retry with a corrected model never leaves a message in both tables.

    1. A run writes dead letters.
    2. It fails before it writes rows.
    3. The model is corrected, and the retry makes the messages rows only.
    """
    produce(setup.bootstrap, setup.topic, [Put(thing(i - 3), millis(1, i)) for i in range(10)])
    strict = PipelineSetup(
        setup.bootstrap, setup.topic, setup.folder, {"limits": {"max_dead_count": 0}}
    )
    refusal_of(strict, DeadLetterLimitError)
    corrected = PipelineSetup(
        setup.bootstrap,
        setup.topic,
        setup.folder,
        {"decode": {"schema": "things.py:Looser"}, "limits": {"max_dead_count": 0}},
    )
    receipt = corrected.run(1).committed.receipt
    assert (receipt.counts.valid, receipt.counts.dead) == (10, 0)
    report = verdict(corrected, read_visible(setup.bootstrap, setup.topic))
    assert report.ok, report


def test_receipts_outlive_the_log(setup: PipelineSetup) -> None:
    """`verify` finds each receipt after a checkpoint, a log clean-up, a compaction and a vacuum."""
    fill(setup, range(1, 5))
    for n in range(1, 5):
        setup.run(n)
    table = DeltaTable(str(setup.folder / "things"))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.optimize.compact()
    table.create_checkpoint()
    table.cleanup_metadata()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    pipeline = setup.pipeline()
    assert [c.receipt.window for c in pipeline.sink.receipts()] == [
        setup.window(n) for n in range(1, 5)
    ]
    verified = verify(
        "things", pipeline.sink, pipeline.dead_letters, pipeline.ledger, pipeline.broker
    )
    assert (verified.windows, verified.rows, verified.exit_code) == (4, 120, 0), verified
    report = verdict(setup, read_visible(setup.bootstrap, setup.topic))
    # Compaction may merge files in any order.
    assert msgspec.structs.replace(report, out_of_order=()).ok, report


def test_a_lost_ledger_is_rebuilt_and_nothing_is_read_twice(setup: PipelineSetup) -> None:
    """A pipeline without its ledger is refused, and works again after the ledger is rebuilt.

    The ledger is rebuilt from receipts. Committed windows are reported, and new windows are
    run.
    """
    fill(setup, range(1, 5))
    for n in (1, 2, 4):
        setup.run(n)
    (setup.folder / "state.db").unlink()
    assert "--rebuild-ledger" in refusal_of(setup, OwnerError, 3)
    pipeline = setup.pipeline()
    rebuild("things", pipeline.sink, pipeline.ledger)
    assert setup.run(2).recovered
    assert not setup.run(3).recovered
    assert [len(ids(setup, n)) for n in range(1, 5)] == [30] * 4
    report = verdict(setup, read_visible(setup.bootstrap, setup.topic))
    assert report.ok, report


def test_a_window_that_is_not_closed(kafka: str, setup: PipelineSetup) -> None:
    """An open window raises NotClosedError with the time to retry, without a request to Kafka."""
    future = PipelineSetup(kafka, setup.topic, setup.folder, {"window": {"delay": "3650d"}})
    assert "or later" in refusal_of(future, NotClosedError)


def test_an_unknown_topic(kafka: str, tmp_path: Path) -> None:
    """An unknown topic raises SpecError with its name."""
    assert "no.such.topic" in refusal_of(PipelineSetup(kafka, "no.such.topic", tmp_path), SpecError)


def test_a_column_that_the_table_cannot_store(setup: PipelineSetup) -> None:
    """A model with an unsigned integer is refused by name before anything is read.

    Neither the table nor the ledger is created.
    """
    fill(setup, range(1, 2))
    unsigned = PipelineSetup(
        setup.bootstrap, setup.topic, setup.folder, {"decode": {"schema": "things.py:Unsigned"}}
    )
    assert "id: UInt32" in refusal_of(unsigned, SpecError)
    assert list(setup.folder.iterdir()) == []


def test_a_window_that_retention_has_eaten(setup: PipelineSetup) -> None:
    """A window that retention has deleted raises DataLossError.

    The error has the wanted and the first available offset. The next window fails too, because
    its start is unproven. Later windows are read.
    """
    fill(setup, range(1, 5))
    setup.run(1)
    delete_records(setup.bootstrap, setup.topic, 0, 75)
    assert "75" in refusal_of(setup, DataLossError, 2)
    refusal_of(setup, DataLossError, 3)
    assert setup.run(4).committed.receipt.counts.valid == 30


def test_a_replay_that_would_see_fewer_messages(setup: PipelineSetup) -> None:
    """A replay is refused while retention has deleted a part of the window.

    `--accept-fewer` doesn't help, because the range can't be read.
    """
    fill(setup, range(1, 3))
    setup.run(1)
    delete_records(setup.bootstrap, setup.topic, 0, 10)
    refusal_of(setup, DataLossError, 1, Request("replay", replace=True))
    assert len(ids(setup, 1)) == 30


def test_a_recreated_topic(setup: PipelineSetup) -> None:
    """A recreated topic is refused by its id, although its offsets look valid."""
    fill(setup, range(1, 3))
    setup.run(1)
    delete_topic(setup.bootstrap, setup.topic)
    create_topic(setup.bootstrap, name=setup.topic)
    fill(setup, range(1, 4))
    refusal_of(setup, IdentityError, 2)


def test_a_changed_grid(setup: PipelineSetup) -> None:
    """A table with hourly windows refuses daily windows."""
    fill(setup, range(1, 3))
    setup.run(1)
    daily = PipelineSetup(setup.bootstrap, setup.topic, setup.folder, {"window": {"grid": "daily"}})
    pipeline = daily.pipeline()
    whole_day = setup.window(0).__class__("things", setup.window(0).start, setup.window(23).end)
    with pytest.raises(GridError):
        run(pipeline, whole_day, Request("test"))


def test_another_ledger(setup: PipelineSetup) -> None:
    """A second ledger is refused, so that a command and a UI can't conflict."""
    fill(setup, range(1, 3))
    setup.run(1)
    second_ledger = PipelineSetup(
        setup.bootstrap, setup.topic, setup.folder, {"state": f"sqlite:///{setup.folder}/other.db"}
    )
    refusal_of(second_ledger, OwnerError, 2)


def test_an_overlap_is_refused_and_names_the_window(setup: PipelineSetup) -> None:
    """A ledger that was edited to overlap can't add a message to the table twice."""
    fill(setup, range(1, 4))
    setup.run(1)
    pipeline = setup.pipeline()
    receipt = next(iter(pipeline.sink.receipts())).receipt
    stop = receipt.plan.stop
    moved = type(stop).of(
        setup.window(5).start, stop.cluster_id, stop.topics, receipt.plan.start.marks
    )
    (setup.folder / "state.db").unlink()
    forged = setup.pipeline()
    forged.ledger.adopt_identity(receipt.ledger)
    forged.ledger.freeze(
        "things",
        [moved, type(stop).of(setup.window(5).end, stop.cluster_id, stop.topics, stop.marks)],
    )
    assert setup.window(1).key in refusal_of(setup, OverlapError, 5)


def test_new_nullable_columns_are_taken_and_others_refused(setup: PipelineSetup) -> None:
    """A new nullable column is added to the table.

    A model that lost or changed a column is refused before anything is read.
    """
    fill(setup, range(1, 5))
    setup.run(1)
    wider = PipelineSetup(
        setup.bootstrap, setup.topic, setup.folder, {"decode": {"schema": "things.py:Wider"}}
    )
    assert wider.run(2).committed.receipt.counts.valid == 30
    assert "extra" in DeltaTable(str(setup.folder / "things")).to_pyarrow_table().column_names
    text = refusal_of(setup, SchemaChangedError, 3)
    assert "extra" in text
