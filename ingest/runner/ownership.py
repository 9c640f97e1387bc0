"""Checks that a pipeline, its ledger and its table belong together, and that it isn't paused.

A run does these checks before it plans, reads or writes anything. The table knows its owner
(`ports.sink.Sink.owner`), and the ledger knows the table that the pipeline writes to. Both are
needed to notice a spec that names another path, a second spec with the same id, and a disk
that isn't mounted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from windrow.ingest.config.window import event_time_of
from windrow.ingest.errors import (
    OwnerError,
    PausedError,
    RefusedError,
    SpecError,
    check_output,
    format_count,
    join_first_few,
    see_runbook,
)
from windrow.ingest.model.boundary import TopicPartition, label_text, number_of
from windrow.ingest.model.grid import batch_at
from windrow.ingest.model.ledger_records import Pause
from windrow.ingest.model.owner import LEDGER_ANEW, refuse_other_owner
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.source import Partitions, selects
from windrow.ingest.model.tiling import difference
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import PublishedAudit, Sink, TableGroup, TopicSink
from windrow.ingest.runner.context import Pipeline

_DO_MOVED = "If the table was moved there: windrow rebind SPEC shows what going on there means."
_DO_MISSING = (
    "Is its disk mounted? If the table was renamed in a database, rename it back (ALTER TABLE). If"
    " it was moved, {}. If it was removed for good: windrow rebind SPEC shows what going on without"
    " it means."
)


_DO_LOST = (
    "Its receipts are lost, and the rows may be there: windrow verify SPEC --restore-receipts puts"
    " receipts back from the ledger's copies. If the rows are gone for good, too: windrow rebind"
    " SPEC shows what going on without them means."
)
"""Advice about a table that can't replace committed windows, and has lost its receipts."""

NEWER_LEDGER = (
    "Set `state` to a newer copy of the ledger, and run windrow verify SPEC --restore-receipts. If"
    " there is none: begin a pipeline with another id, topic, control topic and staging."
)
"""Advice about published windows without a receipt in the table and in the ledger."""

_NEWEST_OFFSETS = 1000
"""Number of a topic-partition's newest offsets that are checked before a pipeline's first run."""

_EVENT_TIME = "timestamp[us, tz=UTC]"
"""The type of columns that `window.event_time` may name."""


def refuse_other_table(pipeline: Pipeline) -> None:
    """Checks that ledger and table are this pipeline's, and that the table isn't lost.

    If the ledger knows committed windows, the table must have at least one of them. A table
    that lacks some windows was restored from a backup: windows in time can be run again; for
    micro-batches see `refuse_restored`. Writes nothing.

    Raises:
        OwnerError: the ledger knows another table; or it knows committed windows, and the
            table doesn't exist or is empty; or the table belongs to another pipeline or
            ledger. The advice says what to do.
        GridError: the table was begun on another grid.
        SpecError: another program made the table.
    """
    refuse_foreign_table(pipeline)
    refuse_empty_table(pipeline)


def refuse_other_tables(pipeline: Pipeline) -> None:
    """Checks the table as `refuse_other_table` does, and the store of the dead letters.

    It is for callers that don't write. A run checks that store when it prepares it.
    """
    refuse_other_table(pipeline)
    pipeline.dead_letters.refuse_other(pipeline.owner())


def pause_of(ledger: Ledger, pipeline_id: str) -> Pause | None:
    """Returns the pause of a paused pipeline; None if the pipeline isn't paused."""
    newest = ledger.pause(pipeline_id)
    return newest if newest is not None and newest.paused else None


def refuse_paused(ledger: Ledger, pipeline_id: str, *, anyway: bool = False) -> None:
    """Checks that the pipeline isn't paused.

    Args:
        ledger: the ledger.
        pipeline_id: the pipeline's id.
        anyway: a pause is ignored.

    Raises:
        PausedError: the pipeline is paused. The text says by whom, since when, and why.
    """
    pause = pause_of(ledger, pipeline_id)
    if pause is not None and not anyway:
        raise PausedError(
            f"Pipeline {pipeline_id} {pause}",
            "ledger",
            "windrow resume SPEC ends the pause; the command's --anyway runs windows all the same.",
        )


def refuse_unready(pipeline: Pipeline) -> Sequence[str]:
    """Does the checks that would refuse every window before its messages are read.

    The schema and the decoders must work, and the table must accept such rows. A run,
    `windrow plan` and `windrow doctor` call it. Writes nothing.

    Returns:
        Texts about the columns that the next rows would add or change.

    Raises:
        SpecError: the schema, a rule of it or a format can't be used, perhaps because a
            package isn't installed; or another pipeline owns the table; or the topic of
            dead letters doesn't exist, or may not be written.
        SchemaChangedError: the rows don't fit the table's columns.
    """
    if pipeline.dead_topic is not None:
        pipeline.dead_topic.refuse_unwritable()
    return refuse_unusable_table(pipeline)


def _refuse_loop(pipeline: Pipeline) -> None:
    """Checks that the pipeline doesn't read a topic that it writes.

    Clusters are compared by their ids, because a cluster may have several addresses.

    Raises:
        SpecError: the pipeline would read its own messages, without end.
    """
    selection, sink, topic = pipeline.spec.source.selection(), pipeline.sink, pipeline.dead_topic
    listed = {tp.topic for tp in selection.tps} if isinstance(selection, Partitions) else set()
    writers = [] if topic is None else [("dead_letters", topic.cluster_id, [topic.name])]
    if isinstance(sink, TopicSink):
        writers.append(("sink", sink.cluster_id, [*sink.written_topics()]))
    for section, cluster_id, names in writers:
        read = [n for n in names if n in listed or selects(selection, TopicPartition(n, 0))]
        if read and cluster_id() == pipeline.broker.cluster_id():
            raise SpecError(
                f"{read[0]} is read by this pipeline, and {section} writes to it",
                "setup",
                "It would read again what it has written, without end. Name another topic under"
                f" {section}.",
            )


def refuse_unusable_table(pipeline: Pipeline) -> Sequence[str]:
    """Does the checks of `refuse_unready`, except for the topic of dead letters.

    `windrow doctor` reports that topic in a separate line.
    """
    _refuse_loop(pipeline)
    decoder = pipeline.decoder()
    check_output(decoder, decoder.open(), "__call__")
    for transform in pipeline.transforms():
        transform.open()
    refuse_missing_event_time(pipeline)
    return pipeline.sink.columns_to_come()


def refuse_missing_event_time(pipeline: Pipeline) -> None:
    """Checks that the rows have the column of `window.event_time`, and that it has timestamps.

    With a spark step these are the rows that its function is given.

    Raises:
        SpecError: they have no such column, or it has another type.
    """
    name = event_time_of(pipeline.spec.window)
    if name is None:
        return
    schema = pipeline.transform().columns(pipeline.decoder().columns).arrow_schema
    type_text = str(schema.field(name).type) if name in schema.names else None
    if type_text != _EVENT_TIME:
        rows = "Rows" if pipeline.dataframe_transform is None else "Rows before the spark step"
        known = [field.name for field in schema if str(field.type) == _EVENT_TIME]
        raise SpecError(
            f"{rows} have no timestamp column {name}, which window.event_time names"
            + ("" if type_text is None else f": it is {type_text}"),
            "spec",
            f"Set it to one of the columns with timestamps: {', '.join(known)}."
            if known
            else "Add a column of timestamps to the schema, or leave out window.event_time.",
        )


def refuse_unwritable(pipeline: Pipeline) -> None:
    """Checks that the table and the store of dead letters may be written.

    It is for callers that don't write. A run fails with the same error when it writes.

    Raises:
        SpecError, UnreachableError: see `ports.sink.Sink.refuse_unwritable`.
    """
    for store in (pipeline.sink, pipeline.dead_letters):
        store.refuse_unwritable()


def refuse_foreign_table(pipeline: Pipeline) -> None:
    """Does the checks of `refuse_other_table`, except for an empty table. Loads the table once.

    So it refuses a table of another pipeline or ledger, at another place, or that is gone.
    """
    spec, ledger, sink = pipeline.spec, pipeline.ledger, pipeline.sink
    _refuse_elsewhere(pipeline, ledger.sink(spec.id))
    bound = sink.owner()
    if bound is not None:
        refuse_other_owner(spec.sink_path(), bound, pipeline.owner())
    elif ledger.recorded_receipts(spec.id, 1):
        raise missing_table_error(sink, len(ledger.recorded_receipts(spec.id)), absent=True)
    elif ledger.sink(spec.id) is None:
        _refuse_published(pipeline)
    refuse_wrong_tables(pipeline)


def _refuse_published(pipeline: Pipeline) -> None:
    """Checks that a pipeline without a table and without a ledger has published no messages.

    Only the newest messages are checked. Topics that this client may not read are skipped.

    Raises:
        OwnerError: there are messages of the pipeline, and a run would publish them again.
    """
    audit, published = pipeline.sink.audit(), Counter[str]()
    if isinstance(audit, PublishedAudit):
        with suppress(SpecError):
            published.update(audit.outside(pipeline.spec.id, _NEWEST_OFFSETS))
    if published:
        raise OwnerError(
            f"Rows of {join_first_few(sorted(published))} are published, and neither the table"
            f" {pipeline.sink.identity} nor the ledger knows a window of {pipeline.spec.id}:"
            " both were lost, or another pipeline has this id",
            "setup",
            f"Nothing was published. {NEWER_LEDGER}",
        )


def refuse_wrong_tables(pipeline: Pipeline) -> None:
    """Checks the tables of a sink of several tables, except for the table with the receipts.

    A table must exist if a receipt in the ledger counts rows in it.

    Raises:
        OwnerError: a table doesn't exist, or belongs to another pipeline or ledger.
        GridError: a table was begun on another grid.
    """
    sink = pipeline.sink
    for table, bound in sink.owners().items() if isinstance(sink, TableGroup) else ():
        if bound is not None:
            refuse_other_owner(table, bound, pipeline.owner())
        elif count := sum(
            any(routed.table == table and routed.rows for routed in copy.routed)
            for copy in pipeline.ledger.recorded_receipts(pipeline.spec.id)
        ):
            raise missing_table_error(sink, count, absent=True, table=table)


def refuse_empty_table(pipeline: Pipeline) -> None:
    """Checks that the table isn't empty, if the ledger knows committed windows.

    Loads the table once, and only if the ledger knows such windows.

    Raises:
        OwnerError: the ledger knows committed windows, and the table has none.
    """
    ledger, sink, name = pipeline.ledger, pipeline.sink, pipeline.spec.id
    # only the newest receipt first: it is one file, and there may be many receipts
    newest = ledger.recorded_receipts(name, 1)
    if newest and sink.look(newest[0].window) is None and next(iter(sink.receipts()), None) is None:
        raise missing_table_error(sink, len(ledger.recorded_receipts(name)), absent=False)


def refuse_lost_receipt(pipeline: Pipeline, window: Window) -> None:
    """Refuses a window without a receipt in the sink, if the ledger knows it as committed.

    Only sinks that can't replace a window are checked. Other sinks delete rows without a
    receipt, so the window can be run again. A topic can lose its receipts but keep the
    messages, if the log with the receipts was truncated or compacted away.

    Raises:
        RefusedError: the ledger knows the window as committed, so its rows may be in the
            topic. The advice says what can be done.
        UnreachableError: the receipt may not be visible yet.
    """
    sink = pipeline.sink
    # The ledger must be read before the table: a run writes the table before the ledger.
    if (
        sink.capabilities.replaces
        or pipeline.ledger.recorded_text(window) is None
        or sink.look(window) is not None
    ):
        return
    sink.wait_until_decided()
    if sink.look(window) is None:
        raise RefusedError(
            f"Window {window.key} {RECEIPT_MISSING} in {sink.identity}",
            "commit",
            ways_out(window.key),
        )


RECEIPT_MISSING = "was committed, as the ledger knows, and its receipt is missing"


def ways_out(key: str) -> str:
    """Returns advice for windows whose receipts are lost, though their rows may be there.

    Args:
        key: the key of the window, or a range that names all windows.
    """
    return (
        "The rows may be there, and can't be taken back. windrow verify SPEC --restore-receipts"
        f" puts receipts back from the ledger's copies, and windrow run SPEC --window {key} --again"
        " writes the rows once more, so that they may be there twice."
    )


def missing_table_error(
    sink: Sink, count: int, *, absent: bool, table: str | None = None
) -> OwnerError:
    """Makes the error for a table that should have committed windows, and has none.

    Args:
        sink: the sink.
        count: the number of committed windows that the ledger knows.
        absent: True if the table doesn't exist, False if it is empty.
        table: the identity of the table, if the sink writes to several tables.
    """
    windows = format_count(count, "committed window")
    state = "isn't there" if absent else "is empty"
    message = f"The table {table or sink.identity} {state}, and the ledger knows {windows} of it"
    moved = (
        "let the sink of the spec name where it is now"
        if table is None
        else "move it back, for the receipts of windows name its place"
    )
    return OwnerError(
        message, "setup", _DO_MISSING.format(moved) if sink.capabilities.replaces else _DO_LOST
    )


def bind_table(pipeline: Pipeline) -> None:
    """Records in the ledger that the pipeline writes to this table.

    It is called when the table exists, and before anything is planned for it.

    Raises:
        OwnerError: another run bound the pipeline to another table first.
    """
    _refuse_elsewhere(pipeline, pipeline.ledger.bind_sink(pipeline.spec.id, pipeline.sink.identity))


def _refuse_elsewhere(pipeline: Pipeline, bound: str | None) -> None:
    if bound is not None and not pipeline.sink.is_at(bound):
        raise OwnerError(
            f"Pipeline {pipeline.spec.id} writes to {bound}; the spec now names"
            f" {pipeline.sink.identity}",
            "setup",
            "Set the sink of the spec back, or give a new pipeline another id: one pipeline has"
            f" one table. {_DO_MOVED}",
        )


def lost_windows(pipeline: Pipeline) -> list[Window]:
    """Returns the windows that the ledger has a receipt for and the table lacks, in order.

    If there are any, the table is older than the ledger. The ledger is read before the table,
    so a window that is committed in between isn't returned. Receipts of micro-batches are
    looked up only for batches that the table lacks, because there may be many batches.
    """
    spec, ledger = pipeline.spec, pipeline.ledger
    if spec.window.is_batch:
        newest = ledger.newest(spec.id)
        ledger_windows = [
            batch_at(spec.id, n) for n in range(number_of(newest[-1].label) if newest else 0)
        ]
    else:
        ledger_windows = [receipt.window for receipt in ledger.recorded_receipts(spec.id)]
    committed = pipeline.sink.committed(ledger_windows)
    return [
        window
        for window in ledger_windows
        if window not in committed
        and not (spec.window.is_batch and ledger.recorded_text(window) is None)
    ]


def refuse_restored(pipeline: Pipeline) -> None:
    """Checks that the ledger and the table know the same micro-batches.

    The next batch begins at the ledger's newest boundary. So messages could be lost if the
    ledger or the table is an older copy:

    1. The ledger is restored from a copy that ends at the start of batch 2. The table has
       batches up to 5.
    2. A run would freeze the end of batch 2 again, at the end of the log.
    3. The table has a batch 2, so the run would report that batch. Messages after batch 5
       would be in no window.

    Raises:
        OwnerError: one of them is older than the other, or they end the newest batch at
            different offsets. The advice says how to repair it.
    """
    spec, ledger = pipeline.spec, pipeline.ledger
    newest = ledger.newest(spec.id)
    following = batch_at(spec.id, number_of(newest[-1].label) if newest else 0)
    if pipeline.sink.committed([following]):
        # another run may have cut and committed this batch since `newest` was read
        if ledger.newest(spec.id) != newest:
            return refuse_restored(pipeline)
        raise OwnerError(
            f"The table {pipeline.sink.identity} has {following.key}, which the ledger doesn't"
            " know: the ledger is an older copy, or empty",
            "plan",
            "windrow doctor SPEC --rebuild-ledger rebuilds it from the table's receipts. Nothing"
            " was read.",
        )
    for receipt in ledger.recorded_receipts(spec.id, 1):
        refuse_other_end(ledger, receipt)
    missing_windows = lost_windows(pipeline)
    if missing_windows:
        refuse_empty_table(pipeline)
        raise OwnerError(
            f"{_lacking_text(pipeline, missing_windows)}: it is an older copy",
            "plan",
            _remedy(pipeline, missing_windows),
        )
    return None


def refuse_other_end(ledger: Ledger, receipt: Receipt) -> None:
    """Checks that ledger and receipt have the same end of a committed window.

    They can differ:

    1. A run plans a window, and is suspended.
    2. The ledger is lost and made anew. Another run freezes another end of the window.
    3. The first run continues, and commits.

    Raises:
        OwnerError: the ledger has another end, at which the next window would begin.
    """
    frozen = ledger.boundary(receipt.window.pipeline, receipt.window.end)
    diff = None if frozen is None else difference(frozen, receipt.plan.stop)
    if diff:
        raise OwnerError(
            f"Window {receipt.window.key} ends elsewhere by the ledger than by its receipt: {diff}",
            "plan",
            LEDGER_ANEW,
        )


def lost_in_words(pipeline: Pipeline, missing_windows: Sequence[Window]) -> str:
    """Returns two sentences: the windows that a table lacks, and what to do about it."""
    return (
        f"{_lacking_text(pipeline, missing_windows)}, though committed."
        f" {_remedy(pipeline, missing_windows)}.{see_runbook('restored-backup')}"
    )


def _lacking_text(pipeline: Pipeline, missing_windows: Sequence[Window]) -> str:
    """Returns text that names the table, and the windows that it lacks.

    If the sink writes to several tables, the text doesn't say which one: `windrow verify` does.
    """
    which = "A table of the routes to" if isinstance(pipeline.sink, TableGroup) else "The table"
    return f"{which} {pipeline.sink.identity} lacks {_windows_text(missing_windows)}"


def _windows_text(windows: Sequence[Window]) -> str:
    first, last = windows[0].key, windows[-1].key
    return (
        first if first == last else f"{format_count(len(windows), 'window')} from {first} to {last}"
    )


def _remedy(pipeline: Pipeline, missing_windows: Sequence[Window]) -> str:
    named = f"{label_text(missing_windows[0].start)}/{label_text(missing_windows[-1].end)}"
    run = (
        "If their rows are there and only the receipts are lost, windrow verify SPEC"
        " --restore-receipts puts these back. Else run them again, from the same offsets: windrow"
        f" run SPEC --window {named}."
    )
    ways = run if pipeline.sink.capabilities.replaces else ways_out(named)
    return f"{ways} To go on without them: windrow rebind SPEC"
