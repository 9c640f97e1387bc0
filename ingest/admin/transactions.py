"""Windows that were begun and aren't committed, and the transactions that their runs
may have left open.

A run of such a window ends them by itself. Until it comes, readers of committed
messages wait behind them, as long as Kafka lets a transaction stay open;
`end_transactions` is for who can't wait, or will not run the window.
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
"""How many boundaries are searched for unfinished windows."""

WATCH_SECONDS = 3.0
"""How long to watch whether somebody still writes."""

SEEN_SECONDS = 10.0
_LOOK_SECONDS = 0.1


class Ended(msgspec.Struct, frozen=True):
    """The windows whose transactions were ended, under which ids, and what still holds
    readers back.
    """

    windows: tuple[str, ...]
    ids: tuple[str, ...]
    left: tuple[HeldBack, ...]


def unfinished(pipeline_id: str, sink: Sink, ledger: Ledger) -> list[Plan]:
    """The frozen plans of windows that the table doesn't hold, in order; of the newest
    windows that the ledger knows.
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
        RefusedError: one has none, so no run of it has come as far as a transaction; or
            the ledger was lost.
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


def to_end(held_back: Iterable[HeldBack], plans: Mapping[str, Plan]) -> set[str]:
    """The windows that hold readers back. Pure.

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
    """End the open transactions of these windows, and see that readers come past them;
    one hides the next, so it looks again.

    Exactly once isn't at stake: a run that is alive all the same is fenced, and begins
    its part again.

    Args:
        transactions: the table's.
        pipeline_id: the pipeline's.
        plans: of the windows.
        force: whether to end what is still written to, too.
        sleep: what waits.

    Raises:
        RefusedError: somebody still writes to what one of these windows holds back.
    """
    by_key, done, ids = {plan.window.key: plan for plan in plans}, set[str](), dict[str, None]()
    held_back = transactions.held_back()
    if to_end(held_back, by_key) and not force:
        sleep(WATCH_SECONDS)
        _refuse_at_work(held_back, transactions.held_back(), by_key.keys())
    while more := to_end(held_back, by_key) - done:
        these = transactions.ids(pipeline_id, [by_key[key] for key in sorted(more)])
        transactions.end(these)
        done, ids = done | more, ids | dict.fromkeys(these)
        held_back = _moved(transactions, held_back, done, sleep)
    return Ended(tuple(sorted(done)), tuple(ids), tuple(held_back))


def _refuse_at_work(
    before: Sequence[HeldBack], after: Sequence[HeldBack], windows: Collection[str]
) -> None:
    """See that nothing came behind what these windows hold back: so a live run looks,
    or another program that writes there.
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


def _moved(
    transactions: OpenTransactions,
    before: Sequence[HeldBack],
    done: Collection[str],
    sleep: Callable[[float], None],
) -> list[HeldBack]:
    """What is still held back, once followers know of the ended transactions."""
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
