"""The check: Dagster and the ledger hold copies; here they are held against the table's
own receipts.
"""

# No postponed annotations here: Dagster reads those of the decorated function itself.

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import dagster as dg
import msgspec

from windrow.assets.dependencies import keys_of, pipeline_of
from windrow.assets.evaluation import evaluated
from windrow.assets.failing import failing
from windrow.assets.names import table_key
from windrow.assets.partitions import key_of
from windrow.assets.reporting import NEWEST
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import in_time
from windrow.ingest.errors import with_spec
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.source.enumerator.tiling import torn

_PROMISE = (
    f"The newest {NEWEST} windows: what Dagster and the ledger say is what the table's receipts"
    " say, and the windows tile"
)


class ShownReceipt(msgspec.Struct, frozen=True):
    """What tells two commits of one window apart."""

    digest: str
    generation: int
    attempt: str


def receipts_check(spec: PipelineSpec) -> dg.AssetChecksDefinition:
    """What Dagster and the ledger say of the newest windows is what the table's
    receipts say, and the windows tile.
    """

    @dg.asset_check(
        asset=table_key(spec),
        name="receipts",
        description=_PROMISE,
        required_resource_keys=keys_of(spec),
    )
    def receipts(context: dg.AssetCheckExecutionContext) -> Any:
        with failing(f"The receipts of {spec.id}"):
            pipeline = pipeline_of(spec, context.resources)
            receipts = newest(c.receipt for c in pipeline.sink.receipts())
            copies = pipeline.ledger.recorded(spec.id, NEWEST)
        seen = shown_receipts(context.instance, spec, receipts)
        wrong = [
            *differences("Dagster", receipts, seen),
            *differences("the ledger", receipts, copies_of(copies)),
            *gaps(receipts),
        ]
        yield from evaluated(
            spec,
            "receipts",
            not wrong,
            with_spec(_why(wrong, len(receipts)), spec.spec_file),
            {"windows": len(receipts), "wrong": "\n".join(wrong) or "nothing"},
        )

    return receipts


def _why(wrong: Sequence[str], windows: int) -> str:
    if not wrong:
        return (
            f"Dagster, the ledger and the table's receipts agree on {windows} windows, and they"
            " tile."
        )
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return (
        f"{wrong[0]}{more}. The table's receipts are right. What Dagster shows is corrected by"
        " materializing the window again, which writes nothing; a ledger by `windrow doctor SPEC"
        " --rebuild-ledger`; for windows that don't tile see `windrow verify SPEC`."
    )


def newest(receipts: Iterable[Receipt]) -> list[Receipt]:
    """Of the newest windows, in the order of time."""
    return sorted(receipts, key=lambda r: r.window)[-NEWEST:]


def copies_of(receipts: Iterable[Receipt]) -> dict[str, ShownReceipt]:
    """What tells them apart, by window."""
    return {r.window.key: ShownReceipt(r.digest, r.generation, r.attempt) for r in receipts}


def shown_receipts(
    instance: dg.DagsterInstance, spec: PipelineSpec, receipts: Iterable[Receipt]
) -> dict[str, ShownReceipt]:
    """What Dagster shows of windows, by window; those it doesn't know are missing."""
    return (
        _shown_batches(instance, spec)
        if spec.window.is_batch
        else _shown_windows(instance, spec, receipts)
    )


def _shown_windows(
    instance: dg.DagsterInstance, spec: PipelineSpec, receipts: Iterable[Receipt]
) -> dict[str, ShownReceipt]:
    """One look-up in Dagster's event log each."""
    found = {}
    for receipt in receipts:
        if receipt.window.span is not None:
            key = key_of(in_time(spec.window), receipt.window.span[0])
            for _, event in _materializations(
                instance, dg.AssetRecordsFilter(table_key(spec), asset_partitions=[key]), 1
            ):
                found[receipt.window.key] = event
    return found


def _shown_batches(instance: dg.DagsterInstance, spec: PipelineSpec) -> dict[str, ShownReceipt]:
    """Batches have no partitions: among the newest events each is there, its newest
    first; a retry or a replay shows it once more.
    """
    found = dict[str, ShownReceipt]()
    for key, event in _materializations(
        instance, dg.AssetRecordsFilter(table_key(spec)), 2 * NEWEST
    ):
        found.setdefault(key, event)
    return found


def _materializations(
    instance: dg.DagsterInstance, wanted: dg.AssetRecordsFilter, limit: int
) -> Iterator[tuple[str, ShownReceipt]]:
    """The window and what was shown of it, the newest first; without those that
    something else reported.
    """
    for record in instance.fetch_materializations(wanted, limit=limit).records:
        event = record.asset_materialization
        if event is not None and "receipt" in event.metadata:
            window = event.metadata.get("window")
            yield (
                "" if window is None else str(window.value),
                msgspec.convert(event.metadata["receipt"].value, ShownReceipt),
            )


def differences(
    who: str, receipts: Iterable[Receipt], copies: Mapping[str, ShownReceipt]
) -> list[str]:
    """Where copies disagree.

    A missing one is no disagreement: the command may have committed the window, a
    ledger can be rebuilt.
    """
    return [
        f"{key}: {who} has generation {copies[key].generation}, the table generation"
        f" {here.generation}"
        for key, here in copies_of(receipts).items()
        if key in copies and copies[key] != here
    ]


def gaps(receipts: Sequence[Receipt]) -> list[str]:
    """Where neighbouring windows don't share their boundary: messages between them
    would be lost, or read twice.

    A rebase is a seam.
    """
    return [
        f"{one.window.key} stops elsewhere than {other.window.key} starts: {unlike}"
        for one, other in pairwise(receipts)
        if one.window.end == other.window.start
        and (unlike := torn(one.plan.stop, other.plan.start))
    ]
