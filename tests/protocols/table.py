"""The protocols and their broken twins, each with the scenario and the step that show the
difference.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.protocols import fenced, numbered, pointer, routed, transaction, unfenced
from tests.protocols.explore import Process, Protocol, Scenario

PROTOCOLS: dict[str, type[Protocol]] = {
    "delta": numbered.NumberedLog,
    "files": numbered.Manifests,
    "iceberg": pointer.Catalog,
    "postgres": transaction.Transaction,
    "kafka": fenced.FencedIds,
    "kafka-at-least-once": unfenced.Unfenced,
    "routes": routed.Routed,
}


class Twin(NamedTuple):
    """A broken twin.

    Attributes:
        protocol_type: its class.
        scenario: the scenario in which it breaks a promise.
        breaks: the first words of the promise.
        breaking_step: the step that breaks it.
    """

    protocol_type: type[Protocol]
    scenario: str
    breaks: str
    breaking_step: str


_ONE, _TWO, _REPLAYS, _SWEEP = "one window twice", "two windows", "two replays", "a sweep"
_CUT = "a control topic that is cut off"

TWINS: dict[str, dict[str, Twin]] = {
    "delta": {
        "path-write": Twin(numbered.PathWrite, _ONE, "INV-2", "put_anywhere"),
        "default-retries": Twin(numbered.DefaultRetries, _ONE, "INV-2", "put_anywhere"),
        "generation-in-the-id": Twin(numbered.GenerationInTheId, _REPLAYS, "INV-2", "put_anywhere"),
        "look-once": Twin(numbered.LookOnce, _ONE, "INV-2", "put_anywhere"),
        "delete-on-unknown": Twin(numbered.DeleteOnUnknown, _ONE, "INV-4", "remove"),
        "sweep-without-word": Twin(numbered.SweepWithoutWord, _SWEEP, "INV-4", "remove"),
        "letters-last": Twin(numbered.LettersLast, _ONE, "INV-1", "put"),
        "no-freeze": Twin(
            numbered.NoFreeze,
            _ONE,
            "a run of (0,) without faults ends with ('Refused', 'another plan')",
            "put",
        ),
        "one-name-for-two-tasks": Twin(
            numbered.OneNameForTwoTasks, _ONE, "A's stopped task of split", "put"
        ),
    },
    "files": {
        "rename-over": Twin(numbered.RenameOver, _TWO, "INV-4", "put_over"),
        "one-manifest-an-attempt": Twin(
            numbered.OneManifestAnAttempt, _ONE, "INV-2", "put_anywhere"
        ),
    },
    "iceberg": {
        "marker-in-the-summary": Twin(
            pointer.MarkerInTheSummary,
            _ONE,
            "after a run of (0,) without faults: INV-2",
            "another engine",
        ),
        "default-retries": Twin(pointer.CatalogRetries, _ONE, "INV-2", "put_anywhere"),
        "look-once": Twin(pointer.CatalogLookOnce, _ONE, "INV-2", "put_anywhere"),
        "delete-on-unknown": Twin(pointer.CatalogDeletes, _ONE, "INV-4", "remove"),
    },
    "postgres": {
        "select-then-insert": Twin(
            transaction.SelectThenInsert,
            _ONE,
            "arrives late, after all have run without faults: INV-2",
            "send_commit",
        ),
        "look-before-lock": Twin(transaction.LookBeforeLock, _ONE, "INV-2", "send_commit"),
        "trusts-staging": Twin(transaction.TrustsStaging, _ONE, "INV-1", "send_commit"),
    },
    "kafka": {
        "look-before-fence": Twin(fenced.LookBeforeFence, _ONE, "INV-2", "end"),
        "random-id": Twin(fenced.RandomId, _ONE, "after all have run without faults: INV-2", "end"),
        "ignores-reports": Twin(fenced.IgnoresReports, _ONE, "INV-1", "end"),
        "look-once": Twin(fenced.LookOnceInAFence, _ONE, "INV-2", "end"),
        "receipt-first": Twin(
            fenced.ReceiptFirst, _ONE, "after a run of (0,) without faults: INV-1", "init"
        ),
        "forgets-the-ledger": Twin(fenced.ForgetsTheLedger, _CUT, "INV-2", "end"),
        "reads-on-behind-a-cut": Twin(
            fenced.ReadsOnBehindACut, _CUT, "after a run of (1,) without faults: INV-2", "end"
        ),
        "receipt-before-its-rows": Twin(
            fenced.ReceiptBeforeItsRows, _ONE, "after all have run without faults: INV-1", "glance"
        ),
    },
    "kafka-at-least-once": {
        "not-asked-after": Twin(unfenced.NotAskedAfter, _ONE, "INV-1", "record"),
        "record-first": Twin(unfenced.RecordFirst, _ONE, "INV-1", "record"),
        "last-receipt-counts": Twin(unfenced.LastReceiptCounts, _ONE, "INV-4", "record"),
    },
    "routes": {
        "last-table-first": Twin(routed.LastTableFirst, _ONE, "INV-1", "commit_to(last"),
        "one-table-counts": Twin(
            routed.OneTableCounts,
            _ONE,
            "after a run of (0,) without faults: INV-1: AlreadyDone",
            "commit_to(first",
        ),
        "goes-on-unknown": Twin(routed.GoesOnUnknown, _ONE, "INV-1", "commit_to(last"),
    },
}


def crowd(scenario: Scenario) -> Scenario:
    """Returns the scenario with a third run of the first required one.

    It has too many states to explore them all.
    """
    return scenario._replace(
        processes=(*scenario.processes, Process("C", "run", scenario.required_runs[0]))
    )
