"""Checks that a pipeline, its ledger and its table belong together, and that it isn't paused.

A run checks it before anything is planned, read or written. The table knows its owner
(`ports.sink.Sink.owner`); the ledger knows the table that the pipeline writes to. Only
both together notice a spec that names another path, a second spec under the same id,
and a disk that isn't mounted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from windrow.ingest.errors import (
    OwnerError,
    PausedError,
    RefusedError,
    SpecError,
    checked_answer,
    counted,
    first_few,
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
"""Advice about a table that can't take back what was committed, and has lost its receipts."""

NEWER_LEDGER = (
    "Set `state` to a newer copy of the ledger, and run windrow verify SPEC --restore-receipts. If"
    " there is none: begin a pipeline with another id, topic, control topic and staging."
)
"""Advice about published windows of which neither the table nor the ledger has a receipt."""

_NEWEST_OFFSETS = 1000
"""Number of offsets of a topic-partition that are looked at before a pipeline's first run."""


def refuse_other_table(pipeline: Pipeline) -> None:
    """Checks that ledger and table are this pipeline's, and that the table isn't lost.

    If the ledger knows committed windows, the table must hold some. Writes nothing. A
    table that lacks only some windows was restored from a backup: windows in time can
    simply be run again; for micro-batches see `refuse_restored`.

    Raises:
        OwnerError: the ledger knows another table, or committed windows of one that
            doesn't exist or is empty; or the table belongs to another pipeline or
            ledger. It says what to do.
        GridError: the table was begun on another grid.
        SpecError: something else made it.
    """
    refuse_wrong_place(pipeline)
    refuse_empty_table(pipeline)


def refuse_other_tables(pipeline: Pipeline) -> None:
    """Checks as `refuse_other_table`, and the store of the dead letters.

    It is for callers that don't write: a run finds the second out when it prepares that store.
    """
    refuse_other_table(pipeline)
    pipeline.dead_letters.refuse_other(pipeline.owner())


def paused(ledger: Ledger, pipeline_id: str) -> Pause | None:
    """Returns the pause of a pipeline that is paused."""
    newest = ledger.pause(pipeline_id)
    return newest if newest is not None and newest.paused else None


def refuse_paused(ledger: Ledger, pipeline_id: str, *, anyway: bool = False) -> None:
    """Checks that nobody has paused the pipeline; `anyway` passes over a pause.

    Raises:
        PausedError: it says who has, since when, and why.
    """
    pause = paused(ledger, pipeline_id)
    if pause is not None and not anyway:
        raise PausedError(
            f"Pipeline {pipeline_id} {pause}",
            "ledger",
            "windrow resume SPEC ends the pause; the command's --anyway runs windows all the same.",
        )


def refuse_unready(pipeline: Pipeline) -> Sequence[str]:
    """Checks all that would refuse any window before its messages are read.

    The schema and the decoders can be used, and the table takes such rows. `windrow
    plan` and `windrow doctor` ask it as a run does. Writes nothing.

    Returns:
        The columns that the next rows would add or change, in words.

    Raises:
        SpecError: the schema, a rule of it or a format can't be used, also because
            something isn't installed; or the table is another's. The topic of dead
            letters doesn't exist, or may not be written.
        SchemaChangedError: the table has columns that the rows don't fit.
    """
    if pipeline.dead_topic is not None:
        pipeline.dead_topic.refuse_unwritable()
    return refuse_unusable_table(pipeline)


def _refuse_loop(pipeline: Pipeline) -> None:
    """Checks by the ids of clusters that the pipeline doesn't read a topic that it writes.

    One cluster may have several addresses.

    Raises:
        SpecError: it would read again what it has written, without end.
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
    """Checks as `refuse_unready`, without the topic of dead letters.

    `windrow doctor` has a line of its own for that topic.
    """
    _refuse_loop(pipeline)
    decoder = pipeline.decoder()
    checked_answer(decoder, decoder.open(), "__call__")
    for transform in pipeline.transforms():
        transform.open()
    return pipeline.sink.columns_to_come()


def refuse_unwritable(pipeline: Pipeline) -> None:
    """Tries whether table and dead letters may be written.

    It is for callers that don't write: a run finds it out, in the same words, by
    writing.

    Raises:
        SpecError, UnreachableError: as `ports.sink.Sink.refuse_unwritable`.
    """
    for store in (pipeline.sink, pipeline.dead_letters):
        store.refuse_unwritable()


def refuse_wrong_place(pipeline: Pipeline) -> None:
    """Checks as `refuse_other_table`, but for an empty table. Loads the table once."""
    spec, ledger, sink = pipeline.spec, pipeline.ledger, pipeline.sink
    _refuse_elsewhere(pipeline, ledger.sink(spec.id))
    bound = sink.owner()
    if bound is not None:
        refuse_other_owner(spec.sink_path(), bound, pipeline.owner())
    elif ledger.recorded(spec.id, 1):
        raise missing_table_error(sink, len(ledger.recorded(spec.id)), absent=True)
    elif ledger.sink(spec.id) is None:
        _refuse_published(pipeline)
    refuse_wrong_tables(pipeline)


def _refuse_published(pipeline: Pipeline) -> None:
    """Checks that a pipeline without a table and without a ledger has published nothing.

    Looks at the newest messages only, and passes over topics that this client may not read.

    Raises:
        OwnerError: it has, and would publish the same windows again.
    """
    audit, published = pipeline.sink.audit(), Counter[str]()
    if isinstance(audit, PublishedAudit):
        with suppress(SpecError):
            published.update(audit.outside(pipeline.spec.id, _NEWEST_OFFSETS))
    if published:
        raise OwnerError(
            f"Rows of {first_few(sorted(published))} are published, and neither the table"
            f" {pipeline.sink.identity} nor the ledger knows a window of {pipeline.spec.id}:"
            " both were lost, or another pipeline has this id",
            "setup",
            f"Nothing was published. {NEWER_LEDGER}",
        )


def refuse_wrong_tables(pipeline: Pipeline) -> None:
    """Checks of several tables that each is there that has rows of windows in the ledger.

    Raises:
        OwnerError: names one that isn't; or one belongs to another pipeline or ledger.
        GridError: one was begun on another grid.
    """
    sink = pipeline.sink
    for table, bound in sink.owners().items() if isinstance(sink, TableGroup) else ():
        if bound is not None:
            refuse_other_owner(table, bound, pipeline.owner())
        elif count := sum(
            any(routed.table == table and routed.rows for routed in copy.routed)
            for copy in pipeline.ledger.recorded(pipeline.spec.id)
        ):
            raise missing_table_error(sink, count, absent=True, table=table)


def refuse_empty_table(pipeline: Pipeline) -> None:
    """Checks the rest of `refuse_other_table`, after no window was found in the table.

    Loads the table once, if the ledger knows any.

    Raises:
        OwnerError: the ledger knows committed windows of a table that holds none.
    """
    ledger, sink, name = pipeline.ledger, pipeline.sink, pipeline.spec.id
    # the newest one first: that is one file, and all receipts are many
    newest = ledger.recorded(name, 1)
    if newest and sink.look(newest[0].window) is None and next(iter(sink.receipts()), None) is None:
        raise missing_table_error(sink, len(ledger.recorded(name)), absent=False)


def refuse_lost_receipt(pipeline: Pipeline, window: Window) -> None:
    """Holds a window without a receipt against the ledger.

    It is for sinks that can't take back what they have committed. Other tables delete
    the rows that no receipt names, and a window that they lack is run again. Of
    messages only the receipts are lost: the log that holds these was truncated, or was
    compacted away.

    Raises:
        RefusedError: the ledger knows the window as committed, so its rows may be in
            the topic; it says what can be done.
        UnreachableError: the receipt may only not be visible yet.
    """
    sink = pipeline.sink
    # in this order: the ledger is read before the table
    if (
        sink.capabilities.replaces
        or pipeline.ledger.written(window) is None
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
    """Words the ways out for windows whose receipts are lost, and whose rows may not be.

    `key`: the name for all of them.
    """
    return (
        "The rows may be there, and can't be taken back. windrow verify SPEC --restore-receipts"
        f" puts receipts back from the ledger's copies, and windrow run SPEC --window {key} --again"
        " writes the rows once more, so that they may be there twice."
    )


def missing_table_error(
    sink: Sink, count: int, *, absent: bool, table: str | None = None
) -> OwnerError:
    """Makes the error for a table that should hold committed windows, and doesn't.

    `absent`: True if it doesn't exist; else it is empty. `table`: the identity of one of
    several tables.
    """
    windows = counted(count, "committed window")
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
    """Records that the pipeline writes to this table.

    It is for the moment when the table exists and nothing is planned for it yet.

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
    """Returns the windows of the ledger's receipts that the table lacks, in their order.

    If there are any, the table is older than the ledger. The ledger is read before the
    table, so that a window which is committed meanwhile is not among them. Copies of
    micro-batches are looked up only for those that the table lacks: there may be many.
    """
    spec, ledger = pipeline.spec, pipeline.ledger
    if spec.window.is_batch:
        newest = ledger.newest(spec.id)
        ledger_windows = [
            batch_at(spec.id, n) for n in range(number_of(newest[-1].label) if newest else 0)
        ]
    else:
        ledger_windows = [receipt.window for receipt in ledger.recorded(spec.id)]
    committed = pipeline.sink.committed(ledger_windows)
    return [
        window
        for window in ledger_windows
        if window not in committed and not (spec.window.is_batch and ledger.written(window) is None)
    ]


def refuse_restored(pipeline: Pipeline) -> None:
    """Checks that the ledger and the table know the same micro-batches.

    The next batch begins at the ledger's newest boundary, so an older copy of either
    leaves messages in no window:

    1. The ledger is restored from a copy that ends at batch 2; the table has batches up to 5.
    2. A run would freeze the end of batch 2 anew, at the end of the log.
    3. The table has a batch 2, so the run reports that one, and all messages since batch 5 are
       in no window.

    Raises:
        OwnerError: one of them is older than the other, or they cut the newest batch at
            different offsets; it says what brings them together.
    """
    spec, ledger = pipeline.spec, pipeline.ledger
    newest = ledger.newest(spec.id)
    following = batch_at(spec.id, number_of(newest[-1].label) if newest else 0)
    if pipeline.sink.committed([following]):
        # another run cut it and committed it between the two looks
        if ledger.newest(spec.id) != newest:
            return refuse_restored(pipeline)
        raise OwnerError(
            f"The table {pipeline.sink.identity} has {following.key}, which the ledger doesn't"
            " know: the ledger is an older copy, or empty",
            "plan",
            "windrow doctor SPEC --rebuild-ledger rebuilds it from the table's receipts. Nothing"
            " was read.",
        )
    for receipt in ledger.recorded(spec.id, 1):
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
    """Checks that the ledger knows the end of a committed window as the receipt has it.

    1. A run plans a window, and is stopped.
    2. The ledger is lost, and made anew; another run freezes the window's end elsewhere.
    3. The first run wakes, and commits.

    Raises:
        OwnerError: it knows another one, at which the next window would begin.
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
    """Words the windows that a table lacks, and what to do about it, in two sentences."""
    return (
        f"{_lacking_text(pipeline, missing_windows)}, though committed."
        f" {_remedy(pipeline, missing_windows)}.{see_runbook('restored-backup')}"
    )


def _lacking_text(pipeline: Pipeline, missing_windows: Sequence[Window]) -> str:
    """Names the table, and the windows that it lacks. Of several tables, verify names the one."""
    which = {"table": "A table of the routes to"}.get(
        pipeline.sink.capabilities.atomic, "The table"
    )
    return f"{which} {pipeline.sink.identity} lacks {_windows_text(missing_windows)}"


def _windows_text(windows: Sequence[Window]) -> str:
    first, last = windows[0].key, windows[-1].key
    return first if first == last else f"{counted(len(windows), 'window')} from {first} to {last}"


def _remedy(pipeline: Pipeline, missing_windows: Sequence[Window]) -> str:
    named = f"{label_text(missing_windows[0].start)}/{label_text(missing_windows[-1].end)}"
    run = (
        "If their rows are there and only the receipts are lost, windrow verify SPEC"
        " --restore-receipts puts these back. Else run them again, from the same offsets: windrow"
        f" run SPEC --window {named}."
    )
    ways = run if pipeline.sink.capabilities.replaces else ways_out(named)
    return f"{ways} To go on without them: windrow rebind SPEC"
