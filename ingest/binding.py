"""A pipeline, its ledger and its table belong together: held against each other before anything is planned, read or written.

The table says whose it is (`ports.Sink.refuse_other`); the ledger says which table the pipeline writes to. Only both together notice a
spec that names another path, a second spec under the same id, and a disk that isn't mounted.
"""

from __future__ import annotations

from ingest.errors import BindingError
from ingest.model import Window
from ingest.parts import Pipeline
from ingest.ports import Sink

_MOVED = "If the table was moved there: windrow rebind SPEC shows what going on there means."
_GONE = (
    "Is its disk mounted? If the table was moved, set sink.path to where it is now. If it was removed for good: windrow rebind SPEC "
    "shows what going on without it means."
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
    spec, ledger, sink = pipeline.spec, pipeline.ledger, pipeline.sink
    _refuse_elsewhere(pipeline, ledger.sink(spec.id))
    bound = sink.binding()
    if bound is not None:
        mine = (ledger.identity(), spec.id, spec.window.grid)
        if (bound.ledger, bound.pipeline, bound.grid) != mine:
            sink.refuse_other(*mine)
    newest = ledger.recorded(spec.id, 1)
    if newest and (bound is None or _is_empty(sink, newest[0].window)):
        raise gone(sink.identity, len(ledger.recorded(spec.id)), absent=bound is None)


def gone(table: str, count: int, *, absent: bool) -> BindingError:
    """The error for a table that should hold committed windows, and isn't there or is empty."""
    windows = f"{count} committed window{'' if count == 1 else 's'}"
    state = "isn't there" if absent else "is empty"
    what = f"The table {table} {state}, and the ledger knows {windows} of it"
    return BindingError(what, "setup", _GONE)


def _is_empty(sink: Sink, newest: Window) -> bool:
    """Looks for the window that is surely there first: that is one file, and the others are many."""
    return sink.look(newest) is None and next(iter(sink.receipts()), None) is None


def bind_table(pipeline: Pipeline) -> None:
    """Record that the pipeline writes to this table, once it is there and before anything is planned for it.

    Raises:
        BindingError: another run bound the pipeline to another table first.
    """
    _refuse_elsewhere(pipeline, pipeline.ledger.bind_sink(pipeline.spec.id, pipeline.sink.identity))


def _refuse_elsewhere(pipeline: Pipeline, bound: str | None) -> None:
    name, here = pipeline.spec.id, pipeline.sink.identity
    if bound not in {None, here}:
        raise BindingError(
            f"Pipeline {name} writes to {bound}; the spec now names {here}", "setup",
            f"Set sink.path back, or give a new pipeline another id: one pipeline has one table. {_MOVED}",
        )  # fmt: skip
