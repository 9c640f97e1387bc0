"""The table's asset: runs, their failures, and what Dagster shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import dagster as dg
import msgspec
import pytest

from tests.assets.world import START, TOPIC, World, hour, of_table, ranges
from windrow.assets.checks import gaps
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.codec import from_json
from windrow.ingest.model.receipt import Committed, Receipt, Staged
from windrow.ingest.ports.broker import OffsetAndEpoch
from windrow.ingest.ports.sink import Outcome

pytestmark = pytest.mark.some(6, of="tests")


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    [failed] = [e for e in result.get_step_failure_events() if e.step_key == "things"]
    return failed.step_failure_data.error_display_string


def passed_by_check(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    """Returns whether each check of a run passed."""
    return {e.check_name: e.passed for e in result.get_asset_check_evaluations()}


def test_one_window(world: World) -> None:
    """A partition's run commits its window once, and materializes it."""
    world.fill(3)
    result = world.run(1)
    assert result.success
    assert world.green_keys() == {world.key(1)}
    assert world.receipt_of(1).counts.valid == 60
    [event] = of_table(result)
    assert event.partition == world.key(1)


def test_a_range_is_one_run_in_order(world: World) -> None:
    """A range commits each of its windows, in the order of time, in one run."""
    world.fill(4)
    assert world.run(0, 3).success
    assert world.green_keys() == {world.key(n) for n in range(4)}
    staged = [world.receipt_of(n).staged_at for n in range(4)]
    assert staged == sorted(staged)
    assert {world.receipt_of(n).request for n in range(4)} == {world.receipt_of(0).request}


def test_metadata_says_all_of_it(world: World) -> None:
    """A window's metadata has its receipt and the numbers that users plot."""
    world.fill(2)
    world.send(1, 59, b"poison")
    world.fill(1, first=2)
    assert world.run(1).success
    shown = world.metadata(1)
    receipt = world.receipt_of(1)
    assert from_json(msgspec.json.encode(shown["receipt"].value), Receipt) == receipt
    numbers = {
        name: shown[name].value for name in ("messages_read", "rows_written", "dead_letters")
    }
    assert numbers == {"messages_read": 61, "rows_written": 60, "dead_letters": 1}
    splits = {str(s.partition): [s.start, s.stop] for s in receipt.plan.splits}
    assert ranges(shown["offsets"]) == {TOPIC: splits}
    assert [r.data["read"] for r in shown["offsets"].records] == [s.read for s in receipt.splits]
    assert shown["dagster/partition_row_count"].value == 60
    assert "recovered" not in shown
    assert shown["table_version"].value == 1
    assert sum(shown["dead_reasons"].value.values()) == 1
    assert all(shown[name].value > 0 for name in ("bytes_read", "rows_per_second"))
    assert shown["run_seconds"].value >= 0
    lineage = shown["dagster/column_lineage"].value.deps_by_column
    assert lineage["id"] == [dg.TableColumnDep(dg.AssetKey(["kafka", TOPIC]), "value")]
    assert lineage["_offset"] == [dg.TableColumnDep(dg.AssetKey(["kafka", TOPIC]), "offset")]
    assert [c.name for c in shown["dagster/column_schema"].value.columns][:2] == ["id", "name"]


def test_lag_is_what_the_topic_has_beyond_the_window(world: World) -> None:
    """Lag counts the offsets between the window's stop and the topic's end.

    Only the last window of a run has it.
    """
    world.fill(4)
    assert world.run(0).success
    assert world.run(1, 2).success
    assert world.run(3).success
    assert [world.metadata(n)["lag_records"].value for n in (0, 2, 3)] == [180, 60, 0]
    assert "lag_records" not in world.metadata(1)
    assert world.metadata(0)["lag_seconds"].value > 0
    assert world.metadata(3)["lag_seconds"].value == 0


def test_a_second_run_writes_nothing(world: World) -> None:
    """A committed window is reported as recovered, and the table isn't changed."""
    world.fill(2)
    assert world.run(0, 1).success
    receipts_before = [world.receipt_of(n) for n in range(2)]
    assert world.run(0, 1).success
    assert [world.receipt_of(n) for n in range(2)] == receipts_before
    assert world.metadata(0)["recovered"].value is True


def test_replace_is_explicit(world: World) -> None:
    """With `on_committed: replace`, the frozen offsets are read again as the next generation."""
    world.fill(2)
    assert world.run(0).success
    assert world.run(0, on_committed="replace").success
    assert world.receipt_of(0).generation == 1
    assert world.metadata(0)["generation"].value == 1


def test_a_refused_window_is_passed_over(world: World) -> None:
    """A refused window is passed over: the windows before and after it are committed.

    An observation of the window says why, and the run fails with its name.
    """
    world.fill(3)
    for _ in range(200):
        world.send(2, 59, b"poison")
    world.fill(1, first=3)
    result = world.run(0, 3)
    assert not result.success
    assert world.green_keys() == {world.key(0), world.key(1), world.key(3)}
    assert f"Window {world.key(2)}: 1 of 4 windows refused: 2026-01-05T02:00:00Z" in failure_of(
        result
    )
    assert "refused: JSON is malformed: Expecting value (200). First: " in failure_of(result)
    assert world.connections == 1
    [record] = world.instance.fetch_observations(dg.AssetKey(["things"]), limit=9).records
    assert record.asset_observation is not None
    assert record.partition_key == world.key(2)
    assert "max_dead_ratio" in str(record.asset_observation.metadata["refused"].value)


def test_what_stops_a_run_names_what_was_not_tried(world: World) -> None:
    """An error that concerns all windows stops the run, and the failure names the windows left."""
    world.set_retries(0)
    world.fill(1)
    world.now = hour(1, 10)
    result = world.run(0, 3)
    assert world.green_keys() == {world.key(0)}
    assert "Not tried: 2026-01-05T02:00:00Z to 2026-01-05T03:00:00Z, 2 windows." in failure_of(
        result
    )


def test_an_open_window_fails_with_one_clear_sentence(world: World) -> None:
    """A run of a window that isn't over says when it can be run."""
    world.fill(1)
    world.now = hour(1)
    result = world.run(0)
    assert not result.success
    assert "2026-01-05T01:05:00Z" in failure_of(result)
    assert world.connections == 1


def test_what_may_pass_by_itself_is_retried(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that doesn't answer once costs a retry, not the run."""
    world.fill(2)
    ends, calls = world.broker.stable_ends, []

    def once_away(tps: list[object]) -> dict[object, OffsetAndEpoch]:
        calls.append(tps)
        if len(calls) == 1:
            raise UnreachableError("The broker is away", "plan", "Wait.")
        return ends(tps)

    monkeypatch.setattr(world.broker, "stable_ends", once_away)
    world.set_retries(1)
    assert world.run(0).success
    assert world.connections > 1
    assert world.green_keys() == {world.key(0)}


def test_the_check_holds_copies_against_receipts(world: World) -> None:
    """The check passes while Dagster and the ledger agree with the table.

    It names a window for which Dagster has another receipt.
    """
    world.fill(3)
    good = world.run(0, 1)
    assert passed_by_check(good) == {
        "receipts": True,
        "loss": True,
        "retention_margin": True,
        "completeness": True,
        "ignored": True,
    }
    older = {"receipt": dg.MetadataValue.json({"digest": "x", "generation": 7, "attempt": "y"})}
    world.instance.report_runless_asset_event(
        dg.AssetMaterialization("things", partition=world.key(0), metadata=older)
    )
    [check] = [e for e in world.run(1).get_asset_check_evaluations() if e.check_name == "receipts"]
    assert not check.passed
    assert "2026-01-05T00:00:00Z: Dagster has generation 7, the table generation 0" in str(
        check.metadata["wrong"].value
    )


def test_the_check_asks_where_windows_are_cut(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbouring windows must have the same offsets at their boundary, or the check fails.

    The origin of a mark doesn't matter.
    """
    world.fill(2)
    assert world.run(0, 1).success
    first, second = world.receipt_of(0), world.receipt_of(1)
    start = second.plan.start

    def receipt_starting(**changes: object) -> Receipt:
        marks = (msgspec.structs.replace(start.marks[0], **changes), *start.marks[1:])
        plan = msgspec.structs.replace(
            second.plan, start=msgspec.structs.replace(start, marks=marks)
        )
        return msgspec.structs.replace(second, plan=plan, digest=plan.digest)

    assert gaps([first, receipt_starting(origin="clamped", leader_epoch=99)]) == []
    replaced = msgspec.structs.replace(
        receipt_starting(offset=start.marks[0].offset + 1), generation=1
    )
    [gap] = gaps([first, replaced])
    assert gap.startswith(
        f"{first.window.key} stops elsewhere than {second.window.key} starts:"
        f" {start.marks[0].tp} at "
    )
    monkeypatch.setattr(
        world.sink, "receipts", lambda: [Committed(r, None) for r in (first, replaced)]
    )
    [check] = [e for e in world.run(0).get_asset_check_evaluations() if e.check_name == "receipts"]
    assert not check.passed
    discrepancies = str(check.metadata["wrong"].value)
    assert gap in discrepancies
    assert (
        f"{second.window.key}: the ledger has generation 0, the table generation 1" in discrepancies
    )


def test_the_check_reads_only_the_newest_receipts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check reads only the receipts of the ledger's newest windows.

    So its cost doesn't grow with the table.
    """
    world.fill(4)
    assert world.run(0, 2).success
    monkeypatch.setattr("windrow.assets.checks.NEWEST", 2)

    def all_of_them() -> Iterator[Committed]:
        raise AssertionError("all receipts were read")

    monkeypatch.setattr(world.sink, "receipts", all_of_them)
    [check] = [e for e in world.run(2).get_asset_check_evaluations() if e.check_name == "receipts"]
    assert check.passed
    assert "agree on 2 windows" in str(check.description)


def test_the_check_names_a_window_that_the_table_has_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check names a window that the ledger has as committed, and the table doesn't have.

    Of several tables, only one may lack it.
    """
    world.fill(4)
    assert world.run(0, 2).success
    monkeypatch.setattr("windrow.assets.checks.NEWEST", 2)
    committed = world.sink.committed
    monkeypatch.setattr(world.sink, "committed", lambda windows: committed(windows[1:]))
    [check] = [e for e in world.run(2).get_asset_check_evaluations() if e.check_name == "receipts"]
    assert not check.passed
    assert "the ledger knows it as committed, the table lacks it" in str(
        check.metadata["wrong"].value
    )


def kill_at_third_window(folder: str) -> None:
    """Runs four windows, and kills this process in the third window's commit.

    It is called in a process of its own.
    """
    with dg.DagsterInstance.local_temp(folder) as instance:
        world = World(Path(folder), instance)
        world.fill(4)
        commit, calls = world.sink.commit, []

        def commit_or_die(receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
            calls.append(receipt)
            if len(calls) == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return commit(receipt, staged)

        world.sink.commit = commit_or_die  # type: ignore[method-assign]
        world.run(0, 3)


@pytest.mark.slow
def test_a_killed_run_leaves_its_finished_windows_green(tmp_path: Path) -> None:
    """After a `kill -9`, the windows that were committed are materialized, and the
    others aren't.
    """
    code = (
        "import sys; from tests.assets.test_window_asset import kill_at_third_window as run;"
        " run(sys.argv[1])"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    died = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        world = World(tmp_path, instance)
        assert world.green_keys() == {world.key(0), world.key(1)}


def test_a_run_never_lists_all_partitions(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run never lists all partitions of the table, so its cost depends on its range only."""

    def fail_to_list(*_: object, **__: object) -> list[str]:
        raise AssertionError("all partitions were listed")

    window = {
        "grid": "* * * * *",
        "start": START - timedelta(days=300),
        "delay": "1m",
        "max_wait": "0s",
    }
    world = World(tmp_path, instance, window=window)
    world.fill(1)
    monkeypatch.setattr(dg.TimeWindowPartitionsDefinition, "get_partition_keys", fail_to_list)
    result = world.run_range("2026-01-05-00:00", "2026-01-05-00:03")
    assert result.success
    assert {e.check_name for e in result.get_asset_check_evaluations()} == {
        "receipts",
        "loss",
        "retention_margin",
        "completeness",
        "ignored",
    }
    assert world.green_keys() == {f"2026-01-05-00:0{n}" for n in range(4)}
