"""What one task brings back of the split that it staged."""

from __future__ import annotations

import msgspec

from ingest.model.plan import Split
from ingest.model.receipt import SplitCounts
from ingest.model.refusals import Kinds


class Staged(msgspec.Struct, frozen=True):
    """What one task staged: names and sizes of files that are not visible yet, in the sink's own words; small, JSON, safe to lose.

    `refused` says what was wrong with the dead letters, and how often (see `ingest.model.refusals`). It is for the error of a window that
    is refused, so it is no part of the counts, which the receipt keeps for ever.
    """

    split: Split
    counts: SplitCounts
    rows: tuple[str, ...]
    dead: tuple[str, ...]
    refused: Kinds = ()
