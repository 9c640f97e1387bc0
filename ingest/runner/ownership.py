"""A pipeline, its ledger and its table belong together: held against each other before
anything is planned, read or written.

The table says whose it is (`ports.sink.Sink.owner`); the ledger says which table the
pipeline writes to. Only both together notice a spec that names another path, a second
spec under the same id, and a disk that isn't mounted.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.ingest.errors import OwnerError, RefusedError
from windrow.ingest.model.label import label_text, number_of
from windrow.ingest.model.owner import refuse_other_owner
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import Awaited
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.source.enumerator.grid import batch_at

_MOVED = "If the table was moved there: windrow rebind SPEC shows what going on there means."
_GONE = (
    "Is its disk mounted? If the table was moved, let the sink of the spec name where it is now. If"
    " it was removed for good: windrow rebind SPEC shows what going on without it means."
)


def refuse_other_table(pipeline: Pipeline) -> None:
    """Ledger and table must be this pipeline's, and the table must hold something if
    the ledger says so.

    Writes nothing.

    A table that lacks only some windows was restored from a backup: windows in time can
    simply be run again, micro-batches see `refuse_restored`.

    Raises:
        OwnerError: the ledger knows another table, or committed windows of one that
            isn't there or is empty; the table belongs to another pipeline or ledger.
            With the way out.
        GridError: the table was begun on another grid.
        SpecError: it was made by something else.
    """
    refuse_wrong_place(pipeline)
    refuse_empty_table(pipeline)


def refuse_unready(pipeline: Pipeline) -> Sequence[str]:
    """What would refuse any window before its messages are read: the schema and what
    decodes can be used, the table takes such rows.

    `windrow plan` and `windrow doctor` ask it as a run does. Writes nothing.

    Returns:
        The columns that the next rows would bring, or change, in words.

    Raises:
        SpecError: the schema, a rule of it or a format can't be used, for something
            that isn't installed, too; or the table is another's. The topic of dead
            letters isn't there, or may not be written.
        SchemaChangedError: the table has columns that the rows don't fit.
    """
    if pipeline.dead_topic is not None:
        pipeline.dead_topic.refuse_unwritable()
    return refuse_unfit_table(pipeline)


def refuse_unfit_table(pipeline: Pipeline) -> Sequence[str]:
    """The same without the topic of dead letters, which `windrow doctor` has a line of
    its own for.
    """
    pipeline.decoder().open()
    pipeline.transform().open()
    return pipeline.sink.columns_to_come()


def refuse_unwritable(pipeline: Pipeline) -> None:
    """Try whether table and dead letters may be written, for who doesn't write: a run
    finds it out, in the same words, by doing so.

    Raises:
        SpecError, UnreachableError: as `ports.sink.Sink.refuse_unwritable`.
    """
    for store in (pipeline.sink, pipeline.dead_letters):
        store.refuse_unwritable()


def refuse_wrong_place(pipeline: Pipeline) -> None:
    """The same but for an empty table: loads the table once."""
    spec, ledger, sink = pipeline.spec, pipeline.ledger, pipeline.sink
    _refuse_elsewhere(pipeline, ledger.sink(spec.id))
    bound = sink.owner()
    if bound is not None:
        refuse_other_owner(spec.sink_path(), bound, pipeline.owner())
    elif ledger.recorded(spec.id, 1):
        raise gone(sink.identity, len(ledger.recorded(spec.id)), absent=True)


def refuse_empty_table(pipeline: Pipeline) -> None:
    """The rest of `refuse_other_table`, for who has found no window in the table yet.

    Loads the table once, if the ledger knows any.

    Raises:
        OwnerError: the ledger knows committed windows of a table that holds none.
    """
    ledger, sink, name = pipeline.ledger, pipeline.sink, pipeline.spec.id
    # looked for first: it is one file, and all the others are many
    newest = ledger.recorded(name, 1)
    if newest and sink.look(newest[0].window) is None and next(iter(sink.receipts()), None) is None:
        raise gone(sink.identity, len(ledger.recorded(name)), absent=False)


def refuse_lost_receipt(pipeline: Pipeline, window: Window) -> None:
    """Hold a window without a receipt against the ledger, where the sink can't take
    back what it has committed.

    A table that rows are deleted from is as its receipts say, and a window that it
    lacks is run again. Of messages only the receipts are lost: the log that holds these
    was cut off, or was compacted away.

    Raises:
        RefusedError: the ledger knows the window as committed, so its rows may be
            there; with the ways out.
        UnreachableError: the receipt may only not be seen yet.
    """
    sink = pipeline.sink
    # in this order
    if (
        sink.capabilities.replaces
        or pipeline.ledger.written(window) is None
        or sink.look(window) is not None
    ):
        return
    if isinstance(sink, Awaited):
        sink.wait_until_decided()
    if sink.look(window) is None:
        raise RefusedError(
            f"Window {window.key} {LOST} in {sink.identity}", "commit", ways_out(window.key)
        )


LOST = "was committed, as the ledger knows, and its receipt is missing"


def ways_out(key: str) -> str:
    """What can be done about windows whose receipts are lost, and whose rows may be there.

    `key`: how they are named together.
    """
    return (
        "The rows may be there, and can't be taken back. windrow verify SPEC --restore-receipts"
        f" puts receipts back from the ledger's copies, and windrow run SPEC --window {key} --again"
        " writes the rows once more, so that they may be there twice."
    )


def gone(table: str, count: int, *, absent: bool) -> OwnerError:
    """The error for a table that should hold committed windows, and isn't there or is empty."""
    windows = f"{count} committed window{'' if count == 1 else 's'}"
    state = "isn't there" if absent else "is empty"
    what = f"The table {table} {state}, and the ledger knows {windows} of it"
    return OwnerError(what, "setup", _GONE)


def bind_table(pipeline: Pipeline) -> None:
    """Record that the pipeline writes to this table, once it is there and before
    anything is planned for it.

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
            f" one table. {_MOVED}",
        )


def lost_windows(pipeline: Pipeline) -> list[Window]:
    """The windows whose receipts the ledger has and that are not in the table, in their
    order: the table is older than the ledger.

    The ledger is read before the table, so that a window which is committed meanwhile
    is not among them. Of micro-batches only the copies of those that the table lacks
    are looked for: there may be many.
    """
    spec, ledger = pipeline.spec, pipeline.ledger
    known = (
        _batches(pipeline)
        if spec.window.is_batch
        else [receipt.window for receipt in ledger.recorded(spec.id)]
    )
    committed = pipeline.sink.committed(known)
    missing = [window for window in known if window not in committed]
    return (
        [window for window in missing if ledger.written(window) is not None]
        if spec.window.is_batch
        else missing
    )


def refuse_restored(pipeline: Pipeline) -> None:
    """Of micro-batches, the ledger and the table must know the same ones: the newest, and all before it.

    The next batch begins where the ledger's newest boundary is, so a copy of either
    that is older leaves messages in no window:

    1 The ledger is restored from a copy that ends at batch 2; the table has batches up
    to 5.  2 A run would freeze the end of batch 2 anew, at the end of the log.  3 The
    table has a batch 2, so the run reports that one, and what came since batch 5 is in
    no window.

    Raises:
        OwnerError: one of them is older than the other; with the command that brings
            them together.
    """  # noqa: E501
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
            "windrow doctor SPEC --rebuild-ledger brings it up to the table, by the receipts there."
            " Nothing was read.",
        )
    lost = lost_windows(pipeline)
    if lost:
        refuse_empty_table(pipeline)
        raise OwnerError(
            f"The table {pipeline.sink.identity} lacks {_named(lost)}: it is an older copy",
            "plan",
            _rerun(pipeline, lost),
        )
    return None


def lost_in_words(pipeline: Pipeline, lost: Sequence[Window]) -> str:
    """The windows that a table lacks, and what to do about it, in two sentences."""
    return (
        f"The table lacks {_named(lost)}, which {'was' if len(lost) == 1 else 'were'} committed."
        f" {_rerun(pipeline, lost)}."
    )


def _batches(pipeline: Pipeline) -> list[Window]:
    """The micro-batches that were cut."""
    newest = pipeline.ledger.newest(pipeline.spec.id)
    return [
        batch_at(pipeline.spec.id, n) for n in range(number_of(newest[-1].label) if newest else 0)
    ]


def _named(windows: Sequence[Window]) -> str:
    first, last = windows[0].key, windows[-1].key
    return first if first == last else f"{len(windows)} windows from {first} to {last}"


def _rerun(pipeline: Pipeline, lost: Sequence[Window]) -> str:
    named = f"{label_text(lost[0].start)}/{label_text(lost[-1].end)}"
    run = (
        "If their rows are there and only the receipts are lost, windrow verify SPEC"
        " --restore-receipts puts these back. Else run them again, from the same offsets: windrow"
        f" run SPEC --window {named}."
    )
    ways = run if pipeline.sink.capabilities.replaces else ways_out(named)
    return f"{ways} To go on without them: windrow rebind SPEC"
