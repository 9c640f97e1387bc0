"""The checks that warn: what was lost, whose hours are not over, and how long the
topics will still hold what is unread.

A warning never fails a run, nor does a cluster that doesn't answer: that is a warning, too.
"""

# No postponed annotations here: Dagster reads those of the decorated function itself.

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import dagster as dg

from windrow.assets.completion import judged, newest_recorded
from windrow.assets.dependencies import Clock, keys_of, pipeline_of
from windrow.assets.evaluation import evaluated
from windrow.assets.metadata import Value
from windrow.assets.names import table_key
from windrow.assets.reporting import NEWEST
from windrow.assets.why import late_words, overdue_words
from windrow.ingest.admin.retention_margin import retention_margin
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import TimeWindows, in_time
from windrow.ingest.errors import WindrowError
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.source.enumerator.completeness import Completeness

Verdict: TypeAlias = tuple[bool, str, Mapping[str, Value]]
"""Whether all is well; a sentence that says why, and what to do if not; what else to show."""

Judge = Callable[[Pipeline], Verdict]

_FEW = 20


def health_checks(spec: PipelineSpec, clock: Clock) -> list[dg.AssetChecksDefinition]:
    """The warning checks of a pipeline; micro-batches have no hours to be complete."""
    checks = [
        _check(
            spec,
            clock,
            "loss",
            f"None of the newest {NEWEST} windows had to go on without messages that were gone",
            loss,
        ),
        _check(
            spec,
            clock,
            "retention_margin",
            "What is unread is still far from the topics' retention",
            room,
        ),
    ]
    if spec.window.is_batch:
        return checks
    promise = (
        f"The hours of the newest {NEWEST} windows are over in every topic-partition, and nothing"
        " of them came late"
    )
    return [*checks, _check(spec, clock, "completeness", promise, completeness)]


def _check(
    spec: PipelineSpec, clock: Clock, name: str, description: str, judge: Judge
) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=table_key(spec),
        name=name,
        description=description,
        required_resource_keys=keys_of(spec),
    )
    def check(context: dg.AssetCheckExecutionContext) -> Any:
        try:
            passed, why, shown = judge(pipeline_of(spec, context.resources, clock))
        except WindrowError as error:
            context.log.warning("The check %s was not made: %s", name, error)
            passed, why, shown = (
                False,
                f"The check was not made: {error}",
                {"unchecked": str(error)},
            )
        yield from evaluated(spec, name, passed, why, shown, dg.AssetCheckSeverity.WARN)

    return check


def loss(pipeline: Pipeline) -> Verdict:
    """What the newest windows have lost, in the receipts' words."""
    receipts = newest_recorded(pipeline, NEWEST)
    lines = [f"{r.window.key}: {line}" for r in receipts for line in r.partial]
    lost = sum(r.counts.skipped for r in receipts)
    why = (
        f"{len(lines)} times the newest {len(receipts)} windows went on without messages that were"
        f" gone; first: {lines[0]}. They can't be read any more: keep messages longer, or run"
        " windows sooner."
        if lines
        else f"The newest {len(receipts)} windows lack nothing."
    )
    return (
        not lines,
        why,
        {
            "windows": len(receipts),
            "skipped": lost,
            "lost": dg.MetadataValue.text(_shortened(lines)),
        },
    )


def room(pipeline: Pipeline) -> Verdict:
    """How long the topics will still hold what is unread."""
    margin = retention_margin(pipeline)
    shown: dict[str, Value] = {"unread": margin.what}
    if margin.do:
        shown["do"] = margin.do
    if margin.left is not None:
        shown["seconds_left"] = round(margin.left.total_seconds())
    return margin.level == "ok", " ".join(filter(None, (f"{margin.what}.", margin.do))), shown


def completeness(pipeline: Pipeline) -> Verdict:
    """Which windows are open past their time or late, and who holds the watermark back."""
    judgement = judged(pipeline, NEWEST)
    late = {
        key: state.late_elsewhere
        for key, state in sorted(judgement.windows.items())
        if state.state == "late"
    }
    overdue = [
        r.window.key
        for r in newest_recorded(pipeline, NEWEST)
        if is_overdue(judgement, r.window.key, r.window.span, pipeline)
    ]
    shown: dict[str, Value] = {
        "states": dg.MetadataValue.json(
            {key: state.state for key, state in sorted(judgement.windows.items())}
        ),
        "overdue": dg.MetadataValue.text(_shortened(overdue)),
        "late": dg.MetadataValue.json(late),
        "holding": dg.MetadataValue.text(_shortened([str(tp) for tp in judgement.holding])),
    }
    if judgement.watermark is not None:
        shown["watermark"] = dg.MetadataValue.timestamp(judgement.watermark)
    return not late and not overdue, _why(pipeline, judgement, overdue, late), shown


def _why(
    pipeline: Pipeline, judgement: Completeness, overdue: Sequence[str], late: Mapping[str, int]
) -> str:
    words = []
    if overdue:
        words.append(
            overdue_words(judgement, overdue, pipeline.ledger.newest(pipeline.spec.id)[-1])
        )
    if late:
        words.append(late_words(late))
    waiting = sum(state.state == "open" for state in judgement.windows.values())
    well = f"{len(judgement.windows) - waiting} windows are complete" + (
        f", {waiting} open and not overdue." if waiting else "."
    )
    return " ".join(words) or well


def is_overdue(
    judgement: Completeness, key: str, span: tuple[datetime, datetime] | None, pipeline: Pipeline
) -> bool:
    """Whether a window should be complete by now and isn't: its delay and all patience
    are over, and nothing proves it.
    """
    late = span is not None and pipeline.now() > patience(in_time(pipeline.spec.window), span[1])
    return late and judgement.windows[key].state == "open"


def patience(window: TimeWindows, end: datetime) -> datetime:
    """Until when a window that ends at `end` may be open."""
    return end + window.delay + window.max_wait


def _shortened(lines: list[str]) -> str:
    more = [f"and {len(lines) - _FEW} more"] if len(lines) > _FEW else []
    return "\n".join([*lines[:_FEW], *more]) or "nothing"
