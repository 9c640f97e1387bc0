"""Windows as a person names them: an instant at which one starts, a micro-batch's
number, or `START/END` for several.
"""

from __future__ import annotations

from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import TimeWindows
from windrow.ingest.errors import GridError, SpecError
from windrow.ingest.model.label import label_text
from windrow.ingest.model.window import Window
from windrow.ingest.source.enumerator.grid import parse_windows


def windows_named(spec: PipelineSpec, text: str) -> list[Window]:
    """The windows of a pipeline that a text names, in order.

    Args:
        spec: the pipeline's.
        text: the instant at which a window starts (`2026-01-05T09:00:00Z`, or as
            Dagster's partition key, `2026-01-05-09:00`), a micro-batch's number or name
            (`7`, `batch-000000007`), or `START/END` for all windows between two of
            them.

    Raises:
        SpecError: it names none, one beside the pipeline's grid, or one from before the
            pipeline's start.
    """
    try:
        windows = parse_windows(spec.id, spec.window.grid, text)
    except GridError as error:
        raise SpecError(error.what, "spec", error.do) from None
    span, grid = windows[0].span, spec.window
    if span is not None and isinstance(grid, TimeWindows) and span[0] < grid.start:
        what = f"Window {windows[0].key} lies before the pipeline's start, {label_text(grid.start)}"
        raise SpecError(what, "spec", f"Choose {label_text(grid.start)} or a later one.")
    return windows
