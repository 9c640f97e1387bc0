"""The check: Dagster and the ledger hold copies; here they are held against the table's own receipts."""

# No postponed annotations here: Dagster reads those of the decorated function itself.

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import dagster as dg
import msgspec

from assets.names import ledger_key, table_key
from assets.partitions import key_of
from assets.table import Assemble
from ingest.model import Receipt
from ingest.spec import PipelineSpec
from ingest.verify import difference

NEWEST = 48
"""How many windows a check looks at: one look-up in Dagster's event log each."""

_PROMISE = f"The newest {NEWEST} windows: what Dagster and the ledger say is what the table's receipts say, and the windows tile"


class Shown(msgspec.Struct, frozen=True):
    """What tells two commits of one window apart."""

    digest: str
    generation: int
    attempt: str


def receipts_check(spec: PipelineSpec, assemble: Assemble) -> dg.AssetChecksDefinition:
    """What Dagster and the ledger say of the newest windows is what the table's receipts say, and the windows tile."""
    state = ledger_key(spec)

    @dg.asset_check(asset=table_key(spec), name="receipts", description=_PROMISE, required_resource_keys={state})
    def receipts(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        held = newest(c.receipt for c in assemble(spec, None).sink.receipts())
        copies = getattr(context.resources, state).ledger().recorded(spec.id)
        seen = shown(context.instance, spec, held)
        wrong = [*differences("Dagster", held, seen), *differences("the ledger", held, copies_of(copies)), *gaps(held)]
        return dg.AssetCheckResult(passed=not wrong, metadata={"windows": len(held), "wrong": "\n".join(wrong) or "nothing"})

    return receipts


def newest(receipts: Iterable[Receipt]) -> list[Receipt]:
    """Of the newest windows, in the order of time."""
    return sorted(receipts, key=lambda r: r.window)[-NEWEST:]


def copies_of(receipts: Iterable[Receipt]) -> dict[str, Shown]:
    """What tells them apart, by window."""
    return {r.window.key: Shown(r.digest, r.generation, r.attempt) for r in receipts}


def shown(instance: dg.DagsterInstance, spec: PipelineSpec, held: Iterable[Receipt]) -> dict[str, Shown]:
    """What Dagster shows of windows, by window; those it doesn't know are missing."""
    found = {}
    for receipt in held:
        key = key_of(spec.window, receipt.window.start)
        wanted = dg.AssetRecordsFilter(table_key(spec), asset_partitions=[key])
        for record in instance.fetch_materializations(wanted, limit=1).records:
            materialization = record.asset_materialization
            if materialization is not None and "receipt" in materialization.metadata:
                found[receipt.window.key] = msgspec.convert(materialization.metadata["receipt"].value, Shown)
    return found


def differences(who: str, held: Iterable[Receipt], copies: Mapping[str, Shown]) -> list[str]:
    """Where copies disagree. A missing one is no disagreement: the command may have committed the window, a ledger can be rebuilt."""
    return [
        f"{key}: {who} has generation {copies[key].generation}, the table generation {here.generation}"
        for key, here in copies_of(held).items()
        if key in copies and copies[key] != here
    ]


def gaps(held: Sequence[Receipt]) -> list[str]:
    """Where neighbouring windows don't share their boundary: messages between them would be lost, or read twice."""
    return [
        f"{one.window.key} stops elsewhere than {other.window.key} starts: {unlike}"
        for one, other in pairwise(held)
        if one.window.end == other.window.start and (unlike := difference(one.plan.stop, other.plan.start))
    ]
