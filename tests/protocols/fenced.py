"""Transactional ids: Kafka.

Each split is published by a transaction of its own, with a record that says so in the same transaction; then the window's receipt by the
table's own id. `init` under an id fences whoever had it before: what that one had open is aborted, and what it was committing is waited
for. A commit is answered before readers see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.protocols.explore import Ask, Process, Program, Scenario, Start
from tests.protocols.world import SPLITS, Receipt, SinkProtocol, World, begun, judge


class Published(NamedTuple):
    """What one transaction brings: a split's rows and their record, or the receipt. `rows`: whether all of them were delivered."""

    receipt: Receipt
    split: int | None
    rows: bool = True

    def __str__(self) -> str:
        return f"{self.receipt}{'' if self.split is None else f', split {self.split}'}"


class Turn(NamedTuple):
    """A transactional id. `open`: what its transaction holds; `committing`: that it is decided, and readers don't see it yet."""

    id: str
    epoch: int
    open: Published | None = None
    committing: bool = False


class Broker(NamedTuple):
    """`log`: what read_committed readers see."""

    log: tuple[Published, ...] = ()
    turns: tuple[Turn, ...] = ()
    expiries: int = 1


class BrokerWorld(World):
    """One cluster."""

    def receipts(self) -> tuple[Receipt, ...]:
        """See `World.receipts`."""
        return tuple(p.receipt for p in self.store.log if p.split is None)

    def decided(self) -> tuple[Receipt, ...]:
        """Those of transactions that are being committed, too."""
        return self.receipts() + tuple(t.open.receipt for t in self.store.turns if t.committing and t.open and t.open.split is None)

    def rows(self) -> Iterator[tuple[tuple[int, int], Receipt]]:
        """See `World.rows`."""
        return ((m, p.receipt) for p in self.store.log if p.rows and p.split is not None for m in p.receipt.messages() if m[0] == p.split)

    def _turn(self, name: str) -> Turn:
        return next((t for t in self.store.turns if t.id == name), Turn(name, 0))

    def _take(self, turn: Turn, **changed: Any) -> Any:
        rest = [t for t in self.store.turns if t.id != turn.id]
        return self._replace(store=self.store._replace(turns=tuple(sorted([*rest, turn])), **changed))

    def init(self, who: str, name: str) -> list[tuple[int, Any]]:
        """The next epoch of an id: it aborts what is open, and waits for what is being committed."""
        turn = self._turn(name)
        return [] if turn.committing else [(turn.epoch + 1, self._take(Turn(name, turn.epoch + 1)))]

    def control(self, who: str) -> list[tuple[tuple[Published, ...], Any]]:
        """The control topic, read to its end."""
        return [(self.store.log, self)]

    def send(self, who: str, name: str, epoch: int, published: Published) -> list[tuple[str, Any]]:
        """Rows and their record. A report may say that rows were not delivered: they are not in the transaction."""
        turn = self._turn(name)
        if (turn.epoch, turn.committing) != (epoch, False):
            return [("fenced", self)]
        some = [] if published.split is None else [("not delivered", self._take(turn._replace(open=published._replace(rows=False))))]
        return [("delivered", self._take(turn._replace(open=published))), *some]

    def end(self, who: str, name: str, epoch: int) -> list[tuple[str, Any]]:
        """Commit. The answer can be lost; so can the request, or it is under way."""
        turn = self._turn(name)
        if turn.epoch != epoch or turn.open is None or turn.committing:
            return [("fenced", self)]
        there, late = self.arrives(("end", name, epoch)), self._replace(flying=self.flying | {("end", name, epoch)})
        return [("ok", there), ("unknown", there), ("unknown", late)]

    def shown(self, who: str, name: str) -> list[tuple[None, Any]]:
        """Wait until readers see what was committed: the topics' ends for them are behind the last row that was delivered."""
        return [] if self._turn(name).committing else [(None, self)]

    def arrives(self, request: Any) -> Any:
        """See `World.arrives`: a commit of an older epoch is refused."""
        _, name, epoch = request
        turn = self._turn(name)
        return self if turn.epoch != epoch or turn.open is None else self._take(turn._replace(committing=True))

    def events(self) -> list[tuple[str, Any]]:
        """The broker shows what is decided, and aborts what is open for too long."""
        shown = [
            (f"readers see what {t.id} committed", self._take(Turn(t.id, t.epoch), log=(*self.store.log, t.open)))
            for t in self.store.turns if t.committing
        ]  # fmt: skip
        late = [t for t in self.store.turns if t.open and not t.committing and self.store.expiries]
        expired = [
            (f"the transaction of {t.id} takes too long, and is aborted", self._take(Turn(t.id, t.epoch + 1), expiries=0)) for t in late
        ]
        return [*shown, *super().events(), *expired]


class FencedIds(SinkProtocol):
    """Fence, look, write: for each split, then for the receipt."""

    name = "kafka"
    atomic = False

    def __init__(self) -> None:
        super().__init__()
        letters = frozenset({(0, "A"), (0, "B"), (1, "B")})
        ready = begun(BrokerWorld, Broker(), boundaries=((0, 0), (1, 2), (2, 4)), letters=letters)
        a, b, c = (Receipt(*what, ()) for what in ((0, 0, "A", 0, 2), (0, 0, "B", 0, 2), (1, 0, "B", 2, 4)))
        halfway = ready._replace(store=Broker(tuple(Published(c, split) for split in SPLITS)))
        self.scenarios = {
            "one window twice": Scenario(ready, (Process("A", "commit", (a,)), Process("B", "commit", (b,))), ((0,),)),
            "two windows": Scenario(halfway, (Process("A", "commit", (a,)), Process("B", "commit", (c,))), ((1,), (0,))),
        }

    def decided(self, world: Any) -> tuple[Receipt, ...]:
        """See `SinkProtocol.decided`."""
        found: tuple[Receipt, ...] = world.decided()
        return found

    def commit(self, me: str, receipt: Receipt, tries: int = 1) -> Program:
        """See `SinkProtocol.commit`: the splits at the same time, then the receipt."""
        published = yield Start(tuple((f"{me}.{split}", "publish", (receipt, split)) for split in SPLITS))
        if any(verdict != "published" for verdict in published):
            return ("Unknown",)
        return (yield from self.receive(receipt, "table", tries))

    def receive(self, receipt: Receipt, name: str, tries: int) -> Program:
        """The receipt, once nothing stands in its way."""
        while tries:
            epoch = yield Ask("init", (name,))
            log: tuple[Published, ...] = yield Ask("control")
            held = judge(receipt, [p.receipt for p in log if p.split is None])
            if held is not None:
                return ("Refused", held) if isinstance(held, str) else ("Done" if held == receipt else "AlreadyDone", held)
            if (yield from self.transaction(name, epoch, Published(receipt, None))) == "ok":
                return ("Done", receipt)
            tries -= 1
        return ("Unknown",)

    def publish(self, me: str, receipt: Receipt, split: int, tries: int = 1) -> Program:
        """One split, if no attempt has published it."""
        while tries:
            name = self.id_of(me, receipt, split)
            epoch = yield Ask("init", (name,))
            log: tuple[Published, ...] = yield Ask("control")
            if any((p.receipt.window, p.split) == (receipt.window, split) for p in log):
                return "published"
            if (yield from self.transaction(name, epoch, Published(receipt, split))) == "ok":
                return "published"
            tries -= 1
        return "unknown"

    def transaction(self, name: str, epoch: int, published: Published) -> Program:
        """Send, commit, wait until readers see it: "ok" only if they surely do."""
        sent = yield Ask("send", (name, epoch, published))
        reply = (yield Ask("end", (name, epoch))) if sent in self.complete else sent
        if reply == "ok" and published.split is not None:
            yield Ask("shown", (name,))
        return reply

    complete = frozenset({"delivered"})
    """Reports after which a transaction may be committed."""

    def id_of(self, me: str, receipt: Receipt, split: int) -> str:
        """The same for all attempts, and in a lane that windows share."""
        return f"lane {split}"


# --------------------------------------------------------------------------------------------------------------------- broken twins


class LookBeforeFence(FencedIds):
    """Looks, then fences: what was committing meanwhile isn't seen."""

    def publish(self, me: str, receipt: Receipt, split: int, tries: int = 1) -> Program:
        """The wrong order."""
        log = yield Ask("control")
        if any((p.receipt.window, p.split) == (receipt.window, split) for p in log):
            return "published"
        name = self.id_of(me, receipt, split)
        epoch = yield Ask("init", (name,))
        return "published" if (yield from self.transaction(name, epoch, Published(receipt, split))) == "ok" else "unknown"


class RandomId(FencedIds):
    """Each attempt has an id of its own, which fences nobody."""

    def id_of(self, me: str, receipt: Receipt, split: int) -> str:
        """By the attempt."""
        return f"{me}'s lane {split}"


class ReceiptBeforeItsRows(FencedIds):
    """Writes the receipt when the splits' commits are answered: readers may see it, and not yet their rows."""

    def transaction(self, name: str, epoch: int, published: Published) -> Program:
        """Waits for nothing."""
        sent = yield Ask("send", (name, epoch, published))
        return (yield Ask("end", (name, epoch))) if sent == "delivered" else sent


class IgnoresReports(FencedIds):
    """Commits whatever the delivery reports say."""

    complete = frozenset({"delivered", "not delivered"})


class LookOnceInAFence(FencedIds):
    """After a commit that was not answered it fences, and writes again without a look."""

    def publish(self, me: str, receipt: Receipt, split: int, tries: int = 1) -> Program:
        """Looks at the first time only."""
        name = self.id_of(me, receipt, split)
        epoch = yield Ask("init", (name,))
        log = yield Ask("control")
        if any((p.receipt.window, p.split) == (receipt.window, split) for p in log):
            return "published"
        if (yield from self.transaction(name, epoch, Published(receipt, split))) == "ok":
            return "published"
        epoch = yield Ask("init", (name,))
        return "published" if (yield from self.transaction(name, epoch, Published(receipt, split))) == "ok" else "unknown"


class ReceiptFirst(FencedIds):
    """The receipt, then the splits: who dies in between leaves a receipt without its rows."""

    def commit(self, me: str, receipt: Receipt, tries: int = 1) -> Program:
        """The wrong order."""
        verdict = yield from self.receive(receipt, "table", tries)
        if verdict == ("Done", receipt):
            yield Start(tuple((f"{me}.{split}", "publish", (receipt, split)) for split in SPLITS))
        return verdict
