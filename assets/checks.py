"""The checks of a table. Only `receipts` can fail; the others warn.

`receipts` compares the copies of Dagster and of the ledger with the table's own receipts. A
warning never fails a run. It is also a warning if a cluster doesn't answer, or if a window
between committed ones was refused or never run.
"""

# No postponed annotations here: Dagster reads the annotations of the decorated function.

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import cache
from itertools import pairwise
from typing import Any

import dagster as dg
import msgspec

from windrow.assets.completeness import Verdict, completeness, shorten
from windrow.assets.dagster_internals import CheckedEvent
from windrow.assets.dependencies import Clock, keys_of, pipeline_of
from windrow.assets.description import code
from windrow.assets.failures import WindowFailedError, raise_as_failure
from windrow.assets.metadata import Value
from windrow.assets.names import dead_letters_key, table_key
from windrow.assets.partitions import partition_key
from windrow.assets.reporting import NEWEST
from windrow.ingest.admin.lag import Uncommitted, describe_uncommitted, uncommitted_between
from windrow.ingest.admin.new_topics import ADVICE, describe_new_topics, find_new_topics
from windrow.ingest.admin.retention_margin import retention_margin
from windrow.ingest.config.limits import is_beyond_share
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import WindrowError, format_count, with_spec
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.tiling import stop_start_difference
from windrow.ingest.ports.sink import Sink
from windrow.ingest.runner.context import Pipeline

LOSS_SPAN = timedelta(days=7)
"""How long a window with lost messages causes a warning. These messages can't be read again."""

DEAD_LETTERS = "dead_letters"
"""The check of the dead letters' asset. All other checks belong to the table's asset."""


def table_checks(spec: PipelineSpec, clock: Clock) -> list[dg.AssetChecksDefinition]:
    """Returns all checks of a pipeline's table and of its dead letters.

    Micro-batches have no check of completeness, because they have no hours.
    """
    return [_check(spec, clock, name) for name in _names(spec)]


def _names(spec: PipelineSpec) -> list[str]:
    needless = {
        *(["completeness"] if spec.window.is_batch else []),
        *(["new_topics"] if spec.watched_pattern is None else []),
    }
    return [name for name in _CHECKS if name not in needless]


def _check(spec: PipelineSpec, clock: Clock, name: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=_asset_of(spec, name),
        name=name,
        description=_CHECKS[name][0],
        required_resource_keys=keys_of(spec),
    )
    def check(context: dg.AssetCheckExecutionContext) -> Any:
        opened = cache(lambda: pipeline_of(spec, context.resources, clock))
        yield dg.Output(None)
        yield _evaluation(
            spec, name, opened, lambda: uncommitted_between(opened(), NEWEST), context.instance
        )

    return check


def _asset_of(spec: PipelineSpec, name: str) -> dg.AssetKey:
    return dead_letters_key(spec) if name == DEAD_LETTERS else table_key(spec)


def log_checks(
    context: dg.AssetExecutionContext, pipeline: Pipeline, *, failing_step: bool = True
) -> None:
    """Evaluates checks in the table's step.

    If a step fails, Dagster skips the steps after it, and shows their checks as failed. So
    a failing step evaluates all checks itself. The check of the dead letters has no step in
    a run of the table. Its result is reported outside of the run, because Dagster accepts
    no result of a check that the run didn't plan. A check whose evaluation fails is left
    out.

    Args:
        context: the run's context.
        pipeline: the pipeline.
        failing_step: True if the step is about to fail: all checks are evaluated; False:
            only the check of the dead letters.
    """
    list_uncommitted = cache(lambda: uncommitted_between(pipeline, NEWEST))
    for name in _names(pipeline.spec) if failing_step else [DEAD_LETTERS]:
        with suppress(WindowFailedError), raise_as_failure(name):
            checked_event = (
                _newest_event(pipeline.spec, context.instance) if name == DEAD_LETTERS else None
            )
            evaluation = _evaluation(
                pipeline.spec,
                name,
                lambda: pipeline,
                list_uncommitted,
                context.instance,
                checked_event,
            )
            if name == DEAD_LETTERS:
                context.instance.report_runless_asset_event(evaluation)
            else:
                context.log_event(evaluation)


def _newest_event(spec: PipelineSpec, instance: dg.DagsterInstance) -> CheckedEvent | None:
    """Returns the newest event of the dead letters, which the check names as its target.

    Without a target, Dagster compares the times of events in whole seconds. A check in the
    same second as its event would count for the event before, and not be shown.
    """
    for record in instance.fetch_materializations(dead_letters_key(spec), limit=1).records:
        return CheckedEvent(
            storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
        )
    return None


def _evaluation(
    spec: PipelineSpec,
    name: str,
    open_pipeline: Callable[[], Pipeline],
    list_uncommitted: Callable[[], Sequence[Uncommitted]],
    instance: dg.DagsterInstance,
    checked_event: CheckedEvent | None = None,
) -> dg.AssetCheckEvaluation:
    """Evaluates a check.

    For an `AssetCheckResult` Dagster 1.13 looks up which materialization was checked. In a
    run over a range of partitions it lists all partitions of the table for that, once per
    check. That takes 5 s on a grid of five minutes that is ten months long. For an
    `AssetCheckEvaluation` it compares the times of the events instead.

    Args:
        spec: the pipeline.
        name: the name of the check.
        open_pipeline: opens the pipeline.
        list_uncommitted: lists the windows that were left out.
        instance: Dagster's instance.
        checked_event: the event that the check is about.

    Raises:
        WindowFailedError: the receipts can't be compared. Other checks warn in such a case.
    """
    fails = name == "receipts"
    try:
        with raise_as_failure(f"The receipts of {spec.id}") if fails else nullcontext():
            pipeline = open_pipeline()
            passed, description, metadata = _CHECKS[name][1](pipeline, instance)
            uncommitted = list_uncommitted() if name in {"receipts", "completeness"} else []
    except WindrowError as error:
        passed, description, uncommitted = False, f"The check was not made: {error}", []
        metadata = {}
    severity = dg.AssetCheckSeverity.ERROR if fails and not passed else dg.AssetCheckSeverity.WARN
    if uncommitted:
        passed, description = False, f"{describe_uncommitted(uncommitted)} {description}"
        metadata = {
            **metadata,
            "uncommitted": shorten([stretch.range for stretch in uncommitted]),
        }
    return dg.AssetCheckEvaluation(
        _asset_of(spec, name),
        name,
        passed,
        metadata,
        checked_event,
        severity=severity,
        description=with_spec(description, spec.spec_path),
        blocking=False,
    )


def _loss(pipeline: Pipeline) -> Verdict:
    """Checks that the newest windows of the last days have lost no messages."""
    since = pipeline.now() - LOSS_SPAN
    recorded = pipeline.ledger.recorded_receipts(pipeline.spec.id, NEWEST)
    receipts = [r for r in recorded if r.staged_at >= since]
    lines = [
        f"{partition_key(pipeline.spec, r.window)}: {line}" for r in receipts for line in r.partial
    ]
    lost_count = sum(r.counts.skipped for r in receipts)
    newest = _newest_words(len(receipts))
    losses = f"{format_count(lost_count, 'offset')} lost" if lost_count else "messages perhaps lost"
    description = (
        f"Of {newest}, {losses}; first: {lines[0]}. They can't be read any more: keep"
        " messages longer, or run windows sooner."
        if lines
        else f"No message of {newest} is lost."
    )
    metadata: dict[str, Value] = {
        "skipped": lost_count,
        "lost": dg.MetadataValue.text(shorten(lines)),
    }
    return not lines, description, metadata


def _retention_margin(pipeline: Pipeline) -> Verdict:
    """Checks how long the topics will still have the unread messages."""
    margin = retention_margin(pipeline)
    metadata: dict[str, Value] = {}
    if margin.remaining_time is not None:
        metadata["seconds_left"] = round(margin.remaining_time.total_seconds())
    return (
        margin.level == "ok",
        " ".join(filter(None, (f"{margin.message}.", margin.advice))),
        metadata,
    )


def _new_topics(pipeline: Pipeline) -> Verdict:
    """Checks whether each topic of the file's pattern has a pipeline."""
    names = find_new_topics(pipeline)
    words = f"{describe_new_topics(names)}. {ADVICE if names else ''}"
    metadata: dict[str, Value] = {"new_topics": dg.MetadataValue.text(shorten(names))}
    return not names, f"{words[0].upper()}{words[1:]}".strip(), metadata


def _dead_letters(pipeline: Pipeline) -> Verdict:
    """Checks whether the newest windows have more dead letters than `limits.warn_dead_ratio`."""
    spec, receipts = pipeline.spec, pipeline.ledger.recorded_receipts(pipeline.spec.id, NEWEST)
    receipts_with_dead = [receipt for receipt in receipts if receipt.counts.dead]
    count, read = (
        sum(r.counts.dead for r in receipts_with_dead),
        sum(r.counts.read for r in receipts),
    )
    reasons = sum((receipt.reasons for receipt in receipts_with_dead), Counter[str]()).most_common()
    metadata: dict[str, Value] = {
        "dead_letters": count,
        "with_dead_letters": dg.MetadataValue.text(
            shorten([partition_key(spec, r.window) for r in receipts_with_dead])
        ),
        "dead_reasons": dg.MetadataValue.json(dict(reasons)),
    }
    newest = _newest_words(len(receipts))
    if not receipts_with_dead:
        return True, f"No message of {newest} is a dead letter.", metadata
    share = spec.limits.warn_dead_ratio
    return (
        not is_beyond_share(count, read, share),
        (
            f"{count:,} of {format_count(read, 'message')} of {newest} became dead letters,"
            f" {reasons[0][1]:,} of them for {code(reasons[0][0])}; `limits.warn_dead_ratio` is"
            f" {share:g}. `windrow dead show SPEC` lists them; once the schema takes them, `windrow"
            f" dead replay SPEC --reason {reasons[0][0]}` makes rows of them."
        ),
        metadata,
    )


def _ignored(pipeline: Pipeline) -> Verdict:
    """Checks whether messages of the newest windows have fields that were passed over."""
    receipts = pipeline.ledger.recorded_receipts(pipeline.spec.id, NEWEST)
    count = sum(receipt.counts.ignored for receipt in receipts)
    fields = sum((receipt.ignored_fields for receipt in receipts), Counter[str]()).most_common()
    is_kept, newest = pipeline.spec.decode.keeps_unknown, _newest_words(len(receipts))
    metadata: dict[str, Value] = {
        "ignored": count,
        "ignored_fields": dg.MetadataValue.json(dict(fields)),
    }
    if not fields:
        return True, f"Each field of the messages of {newest} has a column.", metadata
    return (
        is_kept,
        (
            f"{format_count(count, 'message')} of {newest} with fields that no column is for (most:"
            f" {code(fields[0][0])}): {'rows keep them' if is_kept else 'they were passed over'}."
            " `windrow infer --update SPEC` adds columns for them."
        ),
        metadata,
    )


def _newest_words(windows: int) -> str:
    return "the newest window" if windows == 1 else f"the newest {windows} windows"


class ShownReceipt(msgspec.Struct, frozen=True):
    """The fields of a receipt that distinguish two commits of one window.

    Only the generation changes when the window's rows expire.
    """

    digest: str
    generation: int
    attempt: str


def _receipts(pipeline: Pipeline, instance: dg.DagsterInstance) -> Verdict:
    """Compares the copies of Dagster and the ledger with the table's receipts."""
    spec, copies = pipeline.spec, pipeline.ledger.recorded_receipts(pipeline.spec.id, NEWEST)
    recorded = [copy.window for copy in copies]
    newest, committed = _newest(pipeline.sink, recorded), pipeline.sink.committed(recorded)
    discrepancies = [
        *(
            f"{window.key}: the ledger knows it as committed, the table lacks it"
            for window in recorded
            if window not in committed
        ),
        *_differences("Dagster", newest, _fetch_shown(instance, spec, newest)),
        *_differences("the ledger", newest, _index_by_window(copies)),
        *gaps(newest),
    ]
    metadata: dict[str, Value] = {"wrong": "\n".join(discrepancies) or "nothing"}
    return not discrepancies, _describe_receipts(discrepancies, len(newest)), metadata


def _newest(sink: Sink, recorded: Sequence[Window]) -> list[Receipt]:
    """Returns the table's receipts of the newest windows, in window order.

    Args:
        sink: the table.
        recorded: the newest windows in the ledger. If there are fewer than `NEWEST`, the
            ledger may be new, and all receipts of the table are read.
    """
    if len(recorded) == NEWEST:
        return [committed.receipt for committed in sink.looks(recorded) if committed is not None]
    receipts = (committed.receipt for committed in sink.receipts())
    return sorted(receipts, key=lambda receipt: receipt.window)[-NEWEST:]


def _describe_receipts(discrepancies: Sequence[str], window_count: int) -> str:
    if not discrepancies:
        agreed = "1 window" if window_count == 1 else f"{window_count} windows, and neighbours tile"
        return f"Dagster, the ledger and the table's receipts agree on {agreed}."
    more = f" (and {len(discrepancies) - 1} more)" if len(discrepancies) > 1 else ""
    return (
        f"{discrepancies[0]}{more}. The table's receipts are right. What Dagster shows is corrected"
        " by materializing the window again, which writes nothing; a ledger by `windrow doctor SPEC"
        " --rebuild-ledger`; for windows that the table lacks, or that don't tile, see `windrow"
        " verify SPEC`."
    )


def _index_by_window(receipts: Iterable[Receipt]) -> dict[str, ShownReceipt]:
    return {r.window.key: ShownReceipt(r.digest, r.generation, r.attempt) for r in receipts}


def _fetch_shown(
    instance: dg.DagsterInstance, spec: PipelineSpec, receipts: Iterable[Receipt]
) -> dict[str, ShownReceipt]:
    """Returns the receipts that Dagster shows, by window, without windows that it doesn't know.

    Each window costs one query of the event log.
    """
    shown_receipts = dict[str, ShownReceipt]()
    for receipt in receipts:
        keys = [partition_key(spec, receipt.window)]
        records_filter = dg.AssetRecordsFilter(table_key(spec), asset_partitions=keys)
        for record in instance.fetch_materializations(records_filter, limit=1).records:
            event = record.asset_materialization
            if event is not None and "receipt" in event.metadata:
                shown_receipts[receipt.window.key] = msgspec.convert(
                    event.metadata["receipt"].value, ShownReceipt
                )
    return shown_receipts


def _differences(
    who: str, receipts: Iterable[Receipt], copies: Mapping[str, ShownReceipt]
) -> list[str]:
    """Describes the copies that disagree with the table.

    A missing copy is no disagreement: the window may have been committed by the command,
    and the ledger may have been rebuilt.
    """
    return [
        f"{key}: {who} has generation {copies[key].generation}, the table generation"
        f" {receipt.generation}"
        for key, receipt in _index_by_window(receipts).items()
        if key in copies
        and (copies[key].digest, copies[key].attempt) != (receipt.digest, receipt.attempt)
    ]


def gaps(receipts: Sequence[Receipt]) -> list[str]:
    """Describes neighbouring windows that don't share their boundary.

    Messages between them are lost, or read twice. A rebase between them is no gap.
    """
    return [
        f"{earlier.window.key} stops elsewhere than {later.window.key} starts: {unlike}"
        for earlier, later in pairwise(receipts)
        if earlier.window.end == later.window.start
        and (unlike := stop_start_difference(earlier.plan.stop, later.plan.start))
    ]


_CHECKS: Mapping[str, tuple[str, Callable[[Pipeline, dg.DagsterInstance], Verdict]]] = {
    "receipts": (
        (
            f"For the newest {NEWEST} windows, Dagster and the ledger agree with the table's"
            " receipts, and the windows tile"
        ),
        _receipts,
    ),
    "loss": (
        (
            f"None of the newest {NEWEST} windows, as far as they were committed in the last"
            f" {LOSS_SPAN.days} days, has lost a message"
        ),
        lambda pipeline, _: _loss(pipeline),
    ),
    "retention_margin": (
        "Unread messages are still far from the topics' retention",
        lambda pipeline, _: _retention_margin(pipeline),
    ),
    "completeness": (
        (
            f"The hours of the newest {NEWEST} windows are over in every topic-partition, none of"
            " their messages came late, and no window between them was left out"
        ),
        lambda pipeline, _: completeness(pipeline),
    ),
    "ignored": (
        (
            f"No message of the newest {NEWEST} windows has a field that no column is for and that"
            " was passed over"
        ),
        lambda pipeline, _: _ignored(pipeline),
    ),
    "new_topics": (
        "Each topic of the cluster that matches `for_each.topic_pattern` has its pipeline",
        lambda pipeline, _: _new_topics(pipeline),
    ),
    DEAD_LETTERS: (
        (
            f"Of the messages of the newest {NEWEST} windows no more than `limits.warn_dead_ratio`"
            " are dead letters"
        ),
        lambda pipeline, _: _dead_letters(pipeline),
    ),
}
"""The checks, with their promises."""
