"""Which windows a command is about."""

from __future__ import annotations

from ingest.errors import GridError, SpecError
from ingest.model.label import label_text
from ingest.model.window import Window
from ingest.spec.pipeline import PipelineSpec
from ingest.windows.grid import parse_windows


def windows_of(spec: PipelineSpec, text: str) -> list[Window]:
    """The windows that the text of `--window` names; on the command line a window beside the grid is a mistake of usage.

    Raises:
        SpecError: it names none, or one from before the pipeline's start.
    """
    try:
        windows = parse_windows(spec.id, spec.window.grid, text)
    except GridError as error:
        raise SpecError(error.what, "spec", error.do) from None
    hours, begin = windows[0].hours, spec.window.start
    if hours is not None and begin is not None and hours[0] < begin:
        what = f"Window {windows[0].key} lies before the pipeline's start, {label_text(begin)}"
        raise SpecError(what, "spec", f"Choose {label_text(begin)} or a later one.")
    return windows


def named(spec: PipelineSpec, text: str | None) -> list[Window] | None:
    """The windows that are named; None for the next micro-batch, which has no name yet.

    Raises:
        SpecError: as `windows_of`; or windows in time are not named.
    """
    if text is not None:
        return windows_of(spec, text)
    if not spec.window.is_batch:
        what = f"Pipeline {spec.id} has {spec.window.grid} windows, and --window doesn't say which"
        raise SpecError(what, "spec", "Give the instant at which one starts, or START/END for several.")
    return None
