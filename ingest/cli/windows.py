"""Which windows a command is about."""

from __future__ import annotations

from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import windows_named
from windrow.ingest.errors import SpecError
from windrow.ingest.model.window import Window


def named(spec: PipelineSpec, text: str | None) -> list[Window] | None:
    """The windows that are named; None for the next micro-batch, which has no name yet.

    Raises:
        SpecError: as `windows_named`; or windows in time are not named.
    """
    if text is not None:
        return windows_named(spec, text)
    if not spec.window.is_batch:
        what = f"Pipeline {spec.id} has {spec.window.grid} windows, and --window doesn't say which"
        raise SpecError(
            what, "spec", "Give the instant at which one starts, or START/END for several."
        )
    return None
