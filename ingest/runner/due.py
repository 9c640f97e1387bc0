"""The windows that are due: closed, and neither committed nor refused.

All schedules use this rule: Dagster's tick and Airflow's tasks. A window that was refused for
its data is due again only if windrow, or the settings and files behind the refusal, have
changed (`refused_windows`). A person can run it by name at any time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import pairwise, takewhile

from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import TimeWindows
from windrow.ingest.errors import RefusedError, SpecError, WindrowError
from windrow.ingest.model.grid import labels_back, labels_between
from windrow.ingest.model.ledger_records import RefusedWindow
from windrow.ingest.model.plan import Window
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.runner.context import Pipeline, written_by

LEAST = 48
SPAN = timedelta(days=2)
"""A schedule looks at the closed windows of the newest two days, and at least 48 windows.

Older windows need a backfill.
"""

OLDER = 1_000
"""Number of older windows that are checked, only to report uncommitted ones."""

_CODE_FILE = re.compile(r'"([^"]+\.(?:py|avsc|proto|desc|pb|binpb))(?::\w+)?"')
"""Pattern of a schema's or function's file in the JSON of a spec's sections."""


def closed_windows(spec: PipelineSpec, now: datetime) -> tuple[list[Window], list[Window]]:
    """Returns two lists of closed windows: up to `OLDER` older ones, and the schedule's windows.

    Both are in the order of time.

    Raises:
        SpecError: the pipeline has micro-batches.
    """
    window = spec.window
    if not isinstance(window, TimeWindows):
        raise SpecError(
            f"{spec.id} has micro-batches, which no clock closes",
            "spec",
            "windrow run SPEC --drain commits all messages that are waiting.",
        )
    newest = now - window.delay
    count = max(LEAST, len(labels_between(window.grid, newest - SPAN, newest)))
    labels = labels_back(window.grid, newest, count + OLDER + 1)
    windows = [Window(spec.id, *pair) for pair in pairwise(labels) if pair[0] >= window.start]
    return windows[:-count], windows[-count:]


def due(
    spec: PipelineSpec,
    windows: Sequence[Window],
    committed: Collection[Window],
    refused: Collection[Window],
) -> tuple[list[Window], list[Window]]:
    """Returns the due windows, and the windows that are refused and not committed. Pure.

    If windows must be committed in order, a refused window holds back all later windows.
    """
    uncommitted = [window for window in windows if window not in committed]
    refused_due = [window for window in uncommitted if window in refused]
    if spec.in_order:
        return list(takewhile(lambda window: window not in refused_due, uncommitted)), refused_due
    return [window for window in uncommitted if window not in refused_due], refused_due


def refused_windows(ledger: Ledger, spec: PipelineSpec) -> set[Window]:
    """Returns the windows whose refusals still count: plan, schema and version are the same.

    A plan never changes. So the ledger is asked for a plan only if the refusal has none.
    """
    refusals = ledger.refused_windows(spec.id)
    current = (schema_digest(spec), written_by()) if refusals else ()
    return {
        refusal.window
        for refusal in refusals
        if (refusal.schema, refusal.code) == current
        and (refusal.plan or ledger.plan(refusal.window) is None)
    }


def record_refusal(pipeline: Pipeline, window: Window, error: RefusedError) -> None:
    """Records that a window was refused, if the cause is its data and it isn't committed.

    If ledger or table can't be reached, nothing is recorded, and the window stays due.
    """
    with suppress(WindrowError):
        if not error.of_setting and pipeline.sink.look(window) is None:
            plan, schema = pipeline.ledger.plan(window), schema_digest(pipeline.spec)
            digest = "" if plan is None else plan.digest
            pipeline.ledger.refuse(
                RefusedWindow(window, digest, schema, written_by(), pipeline.now())
            )


def requested_windows(pipeline: Pipeline, request: str, named: Sequence[Window]) -> list[Window]:
    """Returns the windows that a request runs, in order: all due windows, and `named`.

    A retry of the request also returns the windows that an earlier try committed, so that
    they are reported.

    Raises:
        SpecError: the pipeline has micro-batches.
    """
    spec, ledger, sink = pipeline.spec, pipeline.ledger, pipeline.sink
    _, windows = closed_windows(spec, pipeline.now())
    committed = sink.committed(windows)
    due_windows, _ = due(spec, windows, committed, refused_windows(ledger, spec))
    since = ledger.assigned_number(spec.id, request)
    if since is not None:
        done = [window for window in windows if window in committed and _seconds(window) >= since]
        receipts = (look.receipt for look in sink.looks(done) if look is not None)
        due_windows += [receipt.window for receipt in receipts if receipt.request == request]
    elif due_windows:
        ledger.assign(spec.id, request, _seconds(due_windows[0]))
    return sorted({*due_windows, *named})


def _seconds(window: Window) -> int:
    assert window.span is not None
    return int(window.span[0].timestamp())


def schema_digest(spec: PipelineSpec) -> str:
    """Returns a digest of the settings and files that decide which messages are refused.

    The settings say how messages are read, transformed and limited, and which rows the table
    takes. The files are those of schemas and functions; their bytes are digested, and they are
    not imported.
    """
    sections = spec.dump_for_digest("decode", "transform", "sink", "metadata", "limits")
    digest = sha256(f"{sections}{spec.source.on_loss}{spec.source.on_removed}".encode())
    for name in sorted(set(_CODE_FILE.findall(sections))):
        with suppress(OSError):
            digest.update((spec.folder / name).read_bytes())
    return digest.hexdigest()
