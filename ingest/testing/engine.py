"""An engine without Spark, for tests and for trying windrow out: the tasks run here, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingest.model.plan import Split
from ingest.model.staged import Staged


class LocalEngine:
    """`ports.engine.Engine` in this process."""

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> list[Staged]:
        """See `ports.engine.Engine.run`."""
        return [task(split) for split in splits]
