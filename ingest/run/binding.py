"""A pipeline, its ledger and its table belong together: held against each other before anything is planned, read or written.

The table says whose it is (`ports.sink.Sink.binding`); the ledger says which table the pipeline writes to. Only both together notice a
spec that names another path, a second spec under the same id, and a disk that isn't mounted.
"""

from __future__ import annotations

from ingest.errors import BindingError
from ingest.model.binding import refuse_other_binding
from ingest.run.context import Pipeline

_MOVED = "If the table was moved there: windrow rebind SPEC shows what going on there means."
_GONE = (
    "Is its disk mounted? If the table was moved, let the sink of the spec name where it is now. If it was removed for good: "
    "windrow rebind SPEC shows what going on without it means."
)


def refuse_other_table(pipeline: Pipeline) -> None:
    """Ledger and table must be this pipeline's, and the table must hold something if the ledger says so. Writes nothing.

    A table that lacks only some windows is one that was restored from a backup: they can be run again.

    Raises:
        BindingError: the ledger knows another table, or committed windows of one that isn't there or is empty; the table belongs to another
            pipeline or ledger. With the way out.
        GridError: the table was begun on another grid.
        SpecError: it was made by something else.
    """
    refuse_wrong_place(pipeline)
    refuse_empty_table(pipeline)


def refuse_wrong_place(pipeline: Pipeline) -> None:
    """The same but for an empty table: loads the table once."""
    spec, ledger, sink = pipeline.spec, pipeline.ledger, pipeline.sink
    _refuse_elsewhere(pipeline, ledger.sink(spec.id))
    bound = sink.binding()
    if bound is not None:
        refuse_other_binding(spec.sink_path(), bound, pipeline.binding())
    elif ledger.recorded(spec.id, 1):
        raise gone(sink.identity, len(ledger.recorded(spec.id)), absent=True)


def refuse_empty_table(pipeline: Pipeline) -> None:
    """The rest of `refuse_other_table`, for who has found no window in the table yet. Loads the table once, if the ledger knows any.

    Raises:
        BindingError: the ledger knows committed windows of a table that holds none.
    """
    ledger, sink, name = pipeline.ledger, pipeline.sink, pipeline.spec.id
    newest = ledger.recorded(name, 1)  # looked for first: it is one file, and all the others are many
    if newest and sink.look(newest[0].window) is None and next(iter(sink.receipts()), None) is None:
        raise gone(sink.identity, len(ledger.recorded(name)), absent=False)


def gone(table: str, count: int, *, absent: bool) -> BindingError:
    """The error for a table that should hold committed windows, and isn't there or is empty."""
    windows = f"{count} committed window{'' if count == 1 else 's'}"
    state = "isn't there" if absent else "is empty"
    what = f"The table {table} {state}, and the ledger knows {windows} of it"
    return BindingError(what, "setup", _GONE)


def bind_table(pipeline: Pipeline) -> None:
    """Record that the pipeline writes to this table, once it is there and before anything is planned for it.

    Raises:
        BindingError: another run bound the pipeline to another table first.
    """
    _refuse_elsewhere(pipeline, pipeline.ledger.bind_sink(pipeline.spec.id, pipeline.sink.identity))


def _refuse_elsewhere(pipeline: Pipeline, bound: str | None) -> None:
    if bound is not None and not pipeline.sink.is_at(bound):
        raise BindingError(
            f"Pipeline {pipeline.spec.id} writes to {bound}; the spec now names {pipeline.sink.identity}", "setup",
            f"Set the sink of the spec back, or give a new pipeline another id: one pipeline has one table. {_MOVED}",
        )  # fmt: skip
