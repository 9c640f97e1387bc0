"""Unfinished windows of a Kafka sink, and the transactions that their runs left open.

The next run of such a window ends them by itself. Until then, `read_committed` consumers
wait behind them, as long as Kafka lets a transaction stay open. `end_transactions` is for
users who can't wait, or won't run the window again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from windrow.ingest.errors import RefusedError
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.window import Window
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import Sink
from windrow.ingest.ports.transactions import HeldBack, OpenTransactions

NEWEST = 1000
"""Number of boundaries that are searched for unfinished windows."""

WATCH_SECONDS = 3.0
"""Seconds in which it is watched whether somebody still writes."""

SEEN_SECONDS = 10.0
"""Most seconds until consumers can read past an ended transaction."""

_LOOK_SECONDS = 0.1


class Ended(msgspec.Struct, frozen=True):
    """The windows whose transactions were ended, their ids, and what still blocks readers."""

    windows: tuple[str, ...]
    ids: tuple[str, ...]
    left: tuple[HeldBack, ...]


def unfinished(pipeline_id: str, sink: Sink, ledger: Ledger) -> list[Plan]:
    """The frozen plans of windows that aren't committed, in order.

    Only the newest windows of the ledger are searched.
    """
    labels = [boundary.label for boundary in ledger.newest(pipeline_id, NEWEST)]
    windows = [Window(pipeline_id, *pair) for pair in pairwise(labels)]
    plans = [plan for plan in map(ledger.plan, windows) if plan is not None]
    return [
        plan
        for plan, held in zip(plans, sink.looks([plan.window for plan in plans]), strict=True)
        if held is None
    ]


def plans_of(windows: Iterable[Window], ledger: Ledger) -> list[Plan]:
    """The frozen plans of some windows.

    Raises:
        RefusedError: a window has none: no run of it has begun a transaction, or the
            ledger was lost.
    """
    plans = {window.key: ledger.plan(window) for window in windows}
    missing = sorted(key for key, plan in plans.items() if plan is None)
    if missing:
        what = (
            f"the ledger has no plan of window {', '.join(missing)}, so the transactional ids of"
            " its runs are unknown"
        )
        do = (
            "If the ledger was lost, Kafka ends the transactions by itself, after the"
            " transaction_timeout that they were begun with."
        )
        raise RefusedError(what, "plan", do)
    return [plan for plan in plans.values() if plan is not None]


def blocking_windows(held_back: Iterable[HeldBack], plans: Mapping[str, Plan]) -> set[str]:
    """The keys of `plans` whose windows block readers. Pure.

    Only the oldest transaction of each topic-partition is visible.
    """
    return {held.window for held in held_back if held.window is not None} & plans.keys()


def end_transactions(
    transactions: OpenTransactions,
    pipeline_id: str,
    plans: Sequence[Plan],
    *,
    force: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> Ended:
    """Ends the open transactions of windows, and waits until readers can pass them.

    An open transaction hides the next one of its topic-partition, so this repeats until
    no transaction of these windows is left. Exactly once isn't at stake: a run that is
    still alive is fenced, and begins its part again.

    Args:
        transactions: the table's transactions.
        pipeline_id: the pipeline's id.
        plans: the plans of the windows.
        force: also end transactions of topic-partitions that somebody still writes to.
        sleep: waits for so many seconds.

    Raises:
        RefusedError: somebody still writes to a topic-partition that one of these
            windows blocks.
    """
    by_key, done, ids = {plan.window.key: plan for plan in plans}, set[str](), dict[str, None]()
    held_back = transactions.held_back()
    if blocking_windows(held_back, by_key) and not force:
        sleep(WATCH_SECONDS)
        _refuse_written(held_back, transactions.held_back(), by_key.keys())
    while more := blocking_windows(held_back, by_key) - done:
        these = transactions.ids(pipeline_id, [by_key[key] for key in sorted(more)])
        transactions.end(these)
        done, ids = done | more, ids | dict.fromkeys(these)
        held_back = _still_held_back(transactions, held_back, done, sleep)
    return Ended(tuple(sorted(done)), tuple(ids), tuple(held_back))


def _refuse_written(
    before: Sequence[HeldBack], after: Sequence[HeldBack], windows: Collection[str]
) -> None:
    """Refuses if a topic-partition that these windows block has grown.

    Then a run of the window is alive, or another program writes there.
    """
    ends = {(held.topic, held.partition): held.end for held in before if held.window in windows}
    for held in after:
        if held.end > ends.get((held.topic, held.partition), held.end):
            what = (
                f"somebody writes to {held.topic}[{held.partition}], where window {held.window}"
                " holds readers back: its run may be alive"
            )
            do = (
                "Wait for it. If it is another program's writing, --force ends the transaction; a"
                " live run would begin its part again."
            )
            raise RefusedError(what, "commit", do, held.topic, held.partition, held.stable)


def _still_held_back(
    transactions: OpenTransactions,
    before: Sequence[HeldBack],
    done: Collection[str],
    sleep: Callable[[float], None],
) -> list[HeldBack]:
    """Waits until readers can pass the ended transactions; returns what still blocks them."""
    stuck = {held for held in before if held.window in done}
    deadline = time.monotonic() + SEEN_SECONDS
    while True:
        now = transactions.held_back()
        still = {(h.topic, h.partition, h.stable) for h in now} & {
            (h.topic, h.partition, h.stable) for h in stuck
        }
        if not still or time.monotonic() > deadline:
            return now
        sleep(_LOOK_SECONDS)
