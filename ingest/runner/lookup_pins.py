"""Versions that the lookups of a window ask: recorded once, before anything is read.

a first run           the versions of the moment, which the ledger records
a retry, or a second  the recorded ones
run at the same time
a replay              those in the receipt of the generation that it replaces
another spec since    of a lookup that is new, or has another source, the version of the moment
`fresh_lookups`       the versions of the moment, in the place of recorded ones
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from windrow.ingest.errors import SpecError
from windrow.ingest.model.lookup import Pin
from windrow.ingest.ports.lookup import sources_of, version_of
from windrow.ingest.ports.transform import Transform
from windrow.ingest.runner.attempts import Attempt
from windrow.ingest.runner.context import Pipeline


def with_pins(
    pipeline: Pipeline, attempts: Sequence[Attempt], *, fresh: bool = False
) -> list[Attempt]:
    """Returns attempts that know the version of each lookup.

    Raises:
        SpecError: a source isn't there; or `fresh`, and the table may have shown a part of
            the window already.
        UnreachableError: a source doesn't answer.
    """
    sources = sources_of(pipeline.transforms()) if attempts else {}
    if not sources:
        return list(attempts)

    @cache
    def now(lookup: str) -> Pin:
        return Pin(lookup, sources[lookup].identity, version_of(sources[lookup]))

    found = []
    for attempt in attempts:
        window, generation, before = attempt.plan.window, attempt.generation, attempt.found
        recorded = pipeline.ledger.pins(window, generation)
        if fresh and recorded and pipeline.sink.capabilities.atomic != "window":
            raise _shown_in_part(pipeline, window.key)
        known = [*(() if before is None else before.receipt.pins), *recorded]
        kept = {} if fresh else {(pin.lookup, pin.source): pin for pin in known}
        pins = [
            kept.get((lookup, source.identity)) or now(lookup) for lookup, source in sources.items()
        ]
        frozen = pipeline.ledger.freeze_pins(window, generation, pins, anew=fresh)
        found.append(replace(attempt, pins=frozen))
    return found


def pins_now(transform: Transform) -> tuple[Pin, ...]:
    """Returns the versions that a transform's lookups would ask now.

    Raises:
        SpecError, UnreachableError: as `with_pins`.
    """
    return tuple(
        Pin(name, source.identity, version_of(source))
        for name, source in sources_of([transform]).items()
    )


def _shown_in_part(pipeline: Pipeline, key: str) -> SpecError:
    what = (
        f"The lookups of window {key} can't be made anew: {pipeline.sink.identity} shows a window"
        " piece by piece, and a run that died may have shown some of it with the answers of before"
    )
    do = "Nothing was read. Bring back the version that the window is pinned to."
    return SpecError(what, "plan", do)
