"""The protocol without transactions, for Kafka with `delivery_guarantee: at-least-once`.

Each split's rows are sent and confirmed, then a record is written; then the window's receipt.
No run is fenced: steps between a look and a record may happen twice. Of two receipts of a
window the first in the log counts. Every request may arrive late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.protocols.explore import Ask, Process, Program, Scenario, Start
from tests.protocols.fenced import Published
from tests.protocols.world import SPLITS, Receipt, SinkProtocol, World, begin_world, judge, newest


class Topics(NamedTuple):
    """The topics.

    Attributes:
        rows: attempts and splits in the target topic; how often doesn't matter here.
        log: the control topic.
    """

    rows: frozenset[tuple[Receipt, int]] = frozenset()
    log: tuple[Published, ...] = ()


class TopicsWorld(World):
    """One cluster."""

    def receipts(self) -> tuple[Receipt, ...]:
        """Returns the first receipt of each window."""
        receipt_by_window: dict[int, Receipt] = {}
        for published in self.store.log:
            if published.split is None:
                receipt_by_window.setdefault(published.receipt.window, published.receipt)
        return tuple(receipt_by_window.values())

    def rows(self) -> Iterator[tuple[tuple[int, int], Receipt]]:
        """Returns the rows, each once, because duplicates are allowed; see `World.rows`."""
        receipt_by_row = {
            (message, r.window): r
            for r, split in sorted(self.store.rows, key=str)
            for message in r.messages()
            if message[0] == split
        }
        return ((message, receipt) for (message, _), receipt in receipt_by_row.items())

    def control(self, who: str) -> list[tuple[Any, Any]]:
        """Reads the control topic to its end: the published splits, and the receipts that count."""
        return [
            (
                (
                    frozenset(
                        (p.receipt.window, p.split) for p in self.store.log if p.split is not None
                    ),
                    self.receipts(),
                ),
                self,
            )
        ]

    def send(self, who: str, receipt: Receipt, split: int) -> list[tuple[str, Any]]:
        """Sends a split's rows.

        A report may say that they were not delivered, or may never come.
        """
        return [*self._send_request(("send", receipt, split), "delivered"), ("not delivered", self)]

    def record(self, who: str, published: Published) -> list[tuple[str, Any]]:
        """Writes a record."""
        return self._send_request(("record", published), "ok")

    def _send_request(self, request: Any, ok: str) -> list[tuple[str, Any]]:
        arrived, late = self.arrives(request), self._replace(flying=self.flying | {request})
        return [(ok, arrived), ("unknown", arrived), ("unknown", late)]

    def arrives(self, request: Any) -> Any:
        """Applies the request; see `World.arrives`. None is refused."""
        if request[0] == "send":
            return self._replace(store=self.store._replace(rows=self.store.rows | {request[1:]}))
        return (
            self
            if request[1] in self.store.log
            else self._replace(store=self.store._replace(log=(*self.store.log, request[1])))
        )


class LastWorld(TopicsWorld):
    """A cluster in which a later receipt of a window replaces the earlier one."""

    def receipts(self) -> tuple[Receipt, ...]:
        """Returns the last receipt of each window."""
        return tuple(
            {p.receipt.window: p.receipt for p in self.store.log if p.split is None}.values()
        )


class Unfenced(SinkProtocol):
    """The real protocol.

    For each split: look, send, record. Then look, record the receipt, and look for it.
    """

    name = "kafka-at-least-once"
    atomic = False
    kind: type[TopicsWorld] = TopicsWorld

    def __init__(self) -> None:
        super().__init__()
        letters = frozenset({(0, "A"), (0, "B"), (1, "B")})
        ready = begin_world(
            self.kind, Topics(), boundaries=((0, 0), (1, 2), (2, 4)), letters=letters
        )
        a, b, c = (
            Receipt(*fields, ())
            for fields in ((0, 0, "A", 0, 2), (0, 0, "B", 0, 2), (1, 0, "B", 2, 4))
        )
        published_topics = Topics(
            frozenset((c, split) for split in SPLITS),
            tuple(Published(c, split) for split in SPLITS),
        )
        self.scenarios = {
            "one window twice": Scenario(
                ready, (Process("A", "commit", (a,)), Process("B", "commit", (b,))), ((0,),)
            ),
            "two windows": Scenario(
                ready._replace(store=published_topics),
                (Process("A", "commit", (a,)), Process("B", "commit", (c,))),
                ((1,), (0,)),
            ),
        }

    def commit(self, me: str, receipt: Receipt, tries: int = 1) -> Program:
        """Commits the splits at the same time, then the receipt; see `SinkProtocol.commit`."""
        published = yield Start(
            tuple((f"{me}.{split}", "publish", (receipt, split)) for split in SPLITS)
        )
        if any(verdict != "published" for verdict in published):
            return ("Unknown",)
        _, receipts = yield Ask("control")
        held_receipt = judge(receipt, receipts)
        if held_receipt is not None:
            return (
                ("Refused", held_receipt)
                if isinstance(held_receipt, str)
                else ("Done" if held_receipt == receipt else "AlreadyDone", held_receipt)
            )
        if (yield Ask("record", (Published(receipt, None),))) != "ok":
            return ("Unknown",)
        _, receipts = yield Ask("control")
        held_receipt = newest(receipt.window, receipts)
        return ("Done" if held_receipt == receipt else "AlreadyDone", held_receipt)

    def publish(self, me: str, receipt: Receipt, split: int) -> Program:
        """Publishes a split, unless an attempt has recorded it."""
        splits, _ = yield Ask("control")
        if (receipt.window, split) in splits:
            return "published"
        if (yield Ask("send", (receipt, split))) not in self.confirmed:
            return "unknown"
        return (
            "published"
            if (yield Ask("record", (Published(receipt, split),))) == "ok"
            else "unknown"
        )

    confirmed = frozenset({"delivered"})
    """Delivery reports after which a split may be recorded as published."""


# --- broken twins


class NotAskedAfter(Unfenced):
    """A twin that records a split whatever became of its rows, as `delivery_guarantee: none`
    does.
    """

    confirmed = frozenset({"delivered", "not delivered", "unknown"})


class RecordFirst(Unfenced):
    """A twin that records a split before it sends it."""

    def publish(self, me: str, receipt: Receipt, split: int) -> Program:
        """Publishes a split in the wrong order."""
        splits, _ = yield Ask("control")
        if (receipt.window, split) in splits:
            return "published"
        if (yield Ask("record", (Published(receipt, split),))) != "ok":
            return "unknown"
        return "published" if (yield Ask("send", (receipt, split))) in self.confirmed else "unknown"


class LastReceiptCounts(Unfenced):
    """A twin in which two runs of a window get different receipts."""

    kind = LastWorld
