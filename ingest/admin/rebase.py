"""Going on after a topic was made anew, or the cluster replaced: from the newest frozen
boundary on the source is another one.

Nothing is edited: what was committed stays, and can't be replayed; what was frozen and
not committed can't be read any more, and is committed as partial where the loss policy
says to go on.
"""

from __future__ import annotations

from windrow.ingest.errors import SpecError
from windrow.ingest.model.source import Initializer
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.next_start import next_start
from windrow.ingest.runner.ownership import refuse_other_table
from windrow.ingest.source.enumerator.rebased import Rebase, opening


def propose(pipeline: Pipeline, start: Initializer | None) -> Rebase:
    """The rebase that would be recorded now. Writes nothing.

    Raises:
        SpecError: nothing is frozen yet, or nothing has changed; a cluster was replaced
            and no start is given.
        OwnerError: the spec is not of the pipeline that the ledger and the table
            know.
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
    return opening(pipeline.broker, spec.source.origin(spec.window.grid), newest, start)


def rebase(pipeline: Pipeline, start: Initializer | None) -> Rebase:
    """Record it: windows that start at the newest frozen boundary, or later, are of the
    source as it is now.

    Raises:
        SpecError: as `propose`.
        RefusedError: a later boundary was frozen, or another rebase recorded there, meanwhile.
    """
    before = pipeline.ledger.rebased(pipeline.spec.id)
    proposed = propose(pipeline, start)
    instead_of = before[-1] if before and before[-1].label == proposed.opening.label else None
    pipeline.ledger.rebase(pipeline.spec.id, proposed.opening, instead_of)
    return proposed
