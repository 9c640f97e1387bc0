"""Rebase: a pipeline continues with a recreated topic, or a replaced cluster.

Windows from the newest frozen boundary on have the new source. Existing entries aren't
changed:

- Committed windows stay, and can't be replayed.
- Frozen windows that aren't committed can't be read any more. They are committed as partial
  if `source.on_loss` allows that.
"""

from __future__ import annotations

from windrow.ingest.errors import SpecError
from windrow.ingest.model.source import Initializer
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.next_start import next_start
from windrow.ingest.runner.ownership import refuse_other_table
from windrow.ingest.source.enumerator.rebased import Rebase, rebase_at


def propose(pipeline: Pipeline, start: Initializer | None) -> Rebase:
    """Returns the rebase that would be recorded now. Writes nothing.

    Raises:
        SpecError: nothing is frozen yet, or nothing has changed; or the cluster was
            replaced and no start is given.
        OwnerError: the ledger or the table belongs to another pipeline.
    """
    spec = pipeline.spec
    refuse_other_table(pipeline)
    newest = next_start(pipeline.ledger, spec.id)
    if newest is None:
        raise SpecError(
            f"Pipeline {spec.id} has no frozen boundary yet",
            "plan",
            "There is nothing to rebase: just run it.",
        )
    return rebase_at(pipeline.broker, spec.source.for_planning(spec.window.grid), newest, start)


def rebase(pipeline: Pipeline, start: Initializer | None) -> Rebase:
    """Records the rebase in the ledger: later windows are read from the current source.

    Raises:
        SpecError: see `propose`.
        OwnerError: see `propose`.
        RefusedError: meanwhile, a later boundary was frozen, or another rebase recorded.
    """
    earlier_rebases = pipeline.ledger.rebased_boundaries(pipeline.spec.id)
    proposed = propose(pipeline, start)
    instead_of = (
        earlier_rebases[-1]
        if earlier_rebases and earlier_rebases[-1].label == proposed.boundary.label
        else None
    )
    pipeline.ledger.rebase(pipeline.spec.id, proposed.boundary, instead_of)
    return proposed
