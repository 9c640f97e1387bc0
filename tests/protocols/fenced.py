"""The protocol of transactional ids, for Kafka with exactly-once.

Each split is published by its own transaction, with a record of the publication in the same
transaction. Then the window's receipt is written under the table's own id. `init` of an id
fences its previous user: an open transaction of the id is aborted, and a committing one is
waited for. A commit is answered before readers see it. Readers then see it topic by topic:
first the control topic's record, then the rows. (If they see rows first, it is as good as both
at once, because rows without a record aren't asked for.)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from tests.protocols.explore import Again, Ask, Process, Program, Scenario, Start
from tests.protocols.world import SPLITS, Receipt, SinkProtocol, World, begin_world, judge, newest

TABLE = "table"
"""The transactional id of receipts."""

CONTROL, ROWS = "the control topic", "the rows"
"""The topics whose readers see a commit, in this order."""


class Published(NamedTuple):
    """Messages of one transaction: a split's rows and their record, or a receipt.

    Attributes:
        receipt: the receipt of the run.
        split: the split; None for the receipt.
        rows: True if all rows were delivered.
    """

    receipt: Receipt
    split: int | None
    rows: bool = True

    def __str__(self) -> str:
        return f"{self.receipt}{'' if self.split is None else f', split {self.split}'}"


class Turn(NamedTuple):
    """A transactional id.

    Attributes:
        id: its name.
        epoch: the run that has fenced it last; "" for the broker.
        open: messages of its open or committing transaction.
        hidden: topics whose readers don't see the decided transaction yet.
    """

    id: str
    epoch: str = ""
    open: Published | None = None
    hidden: tuple[str, ...] = ()


class Broker(NamedTuple):
    """The messages that readers of committed messages see. Their order doesn't matter.

    Attributes:
        log: messages of the control topic.
        rows: messages of the target topics.
        turns: the transactional ids.
        expiries: number of transactions that the broker may still abort for their timeout.
        gives_up: True if a reader of the control topic may give up waiting for an open
            transaction. A complete exploration doesn't need it: a run that gives up leaves the
            same state as one that dies there.
        copies: windows whose receipts have a copy in the ledger. Empty if the scenario doesn't
            cut the log off.
        log_before_cut: the log before it was cut off; None if it wasn't.
    """

    log: tuple[Published, ...] = ()
    rows: tuple[Published, ...] = ()
    turns: tuple[Turn, ...] = ()
    expiries: int = 1
    gives_up: bool = False
    copies: frozenset[int] = frozenset()
    log_before_cut: tuple[Published, ...] | None = None


class Glance(NamedTuple):
    """The control topic up to its first undecided record.

    Attributes:
        receipts: the receipts in it.
        is_decided: True if that is the whole topic.
    """

    receipts: tuple[Receipt, ...]
    is_decided: bool

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.receipts)) or 'no receipt'}{'' if self.is_decided else ', and what is behind is undecided'}"  # noqa: E501


class BrokerWorld(World):
    """A cluster."""

    def receipts(self) -> tuple[Receipt, ...]:
        """Returns the receipts; see `World.receipts`."""
        return tuple(p.receipt for p in self.store.log if p.split is None)

    def decided(self) -> tuple[Receipt, ...]:
        """Returns the receipts, also of transactions that are being committed."""
        return self.receipts() + tuple(
            t.open.receipt for t in self.store.turns if t.hidden and t.open and t.open.split is None
        )

    def rows(self) -> Iterator[tuple[tuple[int, int], Receipt]]:
        """Returns the rows; see `World.rows`."""
        return (
            (m, p.receipt)
            for p in self.store.rows
            if p.rows
            for m in p.receipt.messages()
            if m[0] == p.split
        )

    def coming(self) -> Iterator[tuple[int, int]]:
        """Returns the messages that readers will see; see `World.coming`."""
        decided = (t.open for t in self.store.turns if ROWS in t.hidden)
        return (m for p in decided if p.rows for m in p.receipt.messages() if m[0] == p.split)

    def _turn(self, name: str) -> Turn:
        return next((t for t in self.store.turns if t.id == name), Turn(name))

    def _take(self, turn: Turn, **changed: Any) -> Any:
        rest = [t for t in self.store.turns if t.id != turn.id]
        turns = tuple(sorted([*rest, turn], key=lambda t: t.id))
        return self._replace(store=self.store._replace(turns=turns, **changed))

    def init(self, who: str, name: str) -> list[tuple[str, Any]]:
        """Starts the next epoch of an id.

        It aborts the open transaction, and waits for a committing one.
        """
        epoch = who
        while ("end", name, epoch) in self.flying:
            epoch += " again"
        return [] if self._turn(name).hidden else [(epoch, self._take(Turn(name, epoch)))]

    def glance(self, who: str, window: int) -> list[tuple[Glance, Any]]:
        """Reads the control topic up to the first undecided record."""
        is_decided = not any(t.open for t in self.store.turns)
        view = Glance(self.receipts(), is_decided)
        return (
            [(view, self)]
            if is_decided or not view.receipts
            else [(view, self), (Glance((), is_decided), self)]
        )

    def _known_log(self, who: str) -> tuple[Published, ...]:
        """Returns the log that a twin's process knows: it reads on from its position before the
        log was cut off.

        Records that others have written since are below that position.
        """
        if self.store.log_before_cut is None:
            return self.store.log
        return self.store.log_before_cut + tuple(
            p for p in self.store.log if p.receipt.attempt == who
        )

    def glance_kept(self, who: str, window: int) -> list[tuple[Glance, Any]]:
        """Reads the control topic for that twin; see `glance`."""
        return [
            (view._replace(receipts=receipts_in(self._known_log(who))), world)
            for view, world in self.glance(who, window)
        ]

    def control_kept(self, who: str, window: int) -> list[tuple[tuple[Published, ...] | None, Any]]:
        """Reads the control topic to its end for that twin; see `control`."""
        return [
            (None if log is None else self._known_log(who), world)
            for log, world in self.control(who, window)
        ]

    def copy(self, who: str, window: int) -> list[tuple[bool, Any]]:
        """Returns whether the ledger has a copy of the window's receipt."""
        return [(window in self.store.copies, self)]

    def control(self, who: str, window: int) -> list[tuple[tuple[Published, ...] | None, Any]]:
        """Reads the control topic to its end, and waits for committing transactions.

        An open transaction is waited for, too, but not for ever: then the outcome is None.
        Another outcome is that the open transaction began after the end, and isn't waited for.
        """
        if any(CONTROL in t.hidden for t in self.store.turns):
            return []
        return [
            (self.store.log, self),
            *(
                [(None, self)]
                if self.store.gives_up and any(t.open for t in self.store.turns)
                else []
            ),
        ]

    def send(self, who: str, name: str, epoch: str, published: Published) -> list[tuple[str, Any]]:
        """Sends rows and their record.

        A delivery report may say that rows were not delivered; then they aren't in the
        transaction.
        """
        turn = self._turn(name)
        if turn.epoch != epoch or turn.hidden:
            return [("fenced", self)]
        not_delivered = (
            []
            if published.split is None
            else [("not delivered", self._take(turn._replace(open=published._replace(rows=False))))]
        )
        return [("delivered", self._take(turn._replace(open=published))), *not_delivered]

    def end(self, who: str, name: str, epoch: str) -> list[tuple[str, Any]]:
        """Commits. The answer can be lost, and so can the request, or it is still under way."""
        turn = self._turn(name)
        if turn.epoch != epoch or turn.open is None or turn.hidden:
            return [("fenced", self)]
        arrived, late = (
            self.arrives(("end", name, epoch)),
            self._replace(flying=self.flying | {("end", name, epoch)}),
        )
        return [("ok", arrived), ("unknown", arrived), ("unknown", late)]

    def shown(self, who: str, splits: tuple[int, ...]) -> list[tuple[None, Any]]:
        """Waits until readers see these splits' rows, by the ends of the topics."""
        hidden = {t.open.split for t in self.store.turns if t.open and ROWS in t.hidden}
        return [(None, self)] if hidden.isdisjoint(splits) else []

    def arrives(self, request: Any) -> Any:
        """Commits, unless the epoch is an older one; see `World.arrives`."""
        _, name, epoch = request
        turn = self._turn(name)
        if turn.epoch != epoch or turn.open is None:
            return self
        return self._take(
            turn._replace(hidden=(CONTROL,) if turn.open.split is None else (CONTROL, ROWS))
        )

    def _shows(self, turn: Turn) -> Any:
        topic, *hidden = turn.hidden
        remaining_turn = (
            turn._replace(hidden=tuple(hidden)) if hidden else Turn(turn.id, turn.epoch)
        )
        visible: tuple[Published, ...] = self.store.log if topic == CONTROL else self.store.rows
        return self._take(
            remaining_turn,
            **{
                "log" if topic == CONTROL else "rows": tuple(sorted((*visible, turn.open), key=str))
            },
        )

    def events(self) -> list[tuple[str, Any]]:
        """Returns the broker's own steps: it shows a decided transaction, or aborts one after
        its timeout.
        """
        shown = [
            (f"readers of {t.hidden[0]} see what {t.id} committed", self._shows(t))
            for t in self.store.turns
            if t.hidden
        ]
        late = [t for t in self.store.turns if t.open and not t.hidden and self.store.expiries]
        expired = [
            (
                f"the transaction of {t.id} takes too long, and is aborted",
                self._take(Turn(t.id), expiries=0),
            )
            for t in late
        ]
        cut = self._replace(store=self.store._replace(log=(), log_before_cut=self.store.log))
        can_be_cut = (
            self.store.copies
            and self.store.log_before_cut is None
            and not self.store.turns
            and not any(self.flying)
        )
        return [
            *shown,
            *super().events(),
            *expired,
            *([("the control topic is cut off", cut)] if can_be_cut else []),
        ]


class FencedIds(SinkProtocol):
    """The real protocol.

    1. Glance at the control topic.
    2. For each split: fence, look, write.
    3. Look, and wait until readers see the splits.
    4. Fence, look, write the receipt.
    """

    name = "kafka"
    atomic = False

    def __init__(self) -> None:
        super().__init__()
        letters = frozenset({(0, "A"), (0, "B"), (1, "B")})
        ready = begin_world(
            BrokerWorld, Broker(), boundaries=((0, 0), (1, 2), (2, 4)), letters=letters
        )
        a, b, c, z = (
            Receipt(*fields, ())
            for fields in (
                (0, 0, "A", 0, 2),
                (0, 0, "B", 0, 2),
                (1, 0, "B", 2, 4),
                (0, 0, "Z", 0, 2),
            )
        )
        published = tuple(Published(c, split) for split in SPLITS)
        self.scenarios = {
            "one window twice": Scenario(
                ready, (Process("A", "commit", (a,)), Process("B", "commit", (b,))), ((0,),)
            ),
            "two windows": Scenario(
                ready._replace(store=Broker(published, published)),
                (Process("A", "commit", (a,)), Process("B", "commit", (c,))),
                ((1,), (0,)),
            ),
            "a control topic that is cut off": Scenario(
                ready._replace(
                    store=Broker(
                        (Published(z, None),),
                        tuple(Published(z, split) for split in SPLITS),
                        copies=frozenset({0}),
                    ),
                    letters=letters | {(0, "Z")},
                ),
                (Process("A", "commit", (a,)), Process("B", "commit", (c,))),
                ((1,),),
                frozenset({"its receipt is lost"}),
            ),
        }

    def decided(self, world: Any) -> tuple[Receipt, ...]:
        """Returns the decided receipts; see `SinkProtocol.decided`."""
        receipts: tuple[Receipt, ...] = world.decided()
        return receipts

    def find_loss(self, old_world: World, new_world: World) -> str | None:
        """Returns the broken promise; see `SinkProtocol.find_loss`.

        A crash that cuts the control topic off breaks none.
        """
        cut = old_world.store.log_before_cut is None and new_world.store.log_before_cut is not None
        return None if cut else super().find_loss(old_world, new_world)

    sees, reads = "glance", "control"
    """Names of the requests for the control topic, before a fence and after it."""

    asks_the_ledger = True
    """True if the ledger's copy of a receipt forbids a window that the control topic doesn't
    have.
    """

    def commit(self, me: str, receipt: Receipt, tries: int = 1) -> Program:
        """Commits a window; see `SinkProtocol.commit`.

        A dead run's open transactions are ended first; otherwise the run would wait for them,
        and fence them only later.

        In the code the run asks the ledger, not the sink; see
        `ingest.runner.ownership.refuse_lost_receipt`. The model has no crash that cuts the
        topic off after that, while another run publishes.
        """
        view: Glance = yield Ask(self.sees, (receipt.window,))
        verdict = self.judge_receipt(receipt, view.receipts)
        if verdict is not None:
            return verdict
        if self.asks_the_ledger and (yield Ask("copy", (receipt.window,))):
            return ("Refused", "its receipt is lost")
        if not view.is_decided:
            for name in (TABLE, *(self.id_of(me, receipt, split) for split in SPLITS)):
                yield Ask("init", (name,))
        return Again("publish", (receipt, tries))

    def publish(self, me: str, receipt: Receipt, tries: int) -> Program:
        """Publishes the splits at the same time, and waits until readers see their rows before
        the receipt.
        """
        published = yield Start(
            tuple((f"{me}.{split}", "publish_split", (receipt, split, tries)) for split in SPLITS)
        )
        if any(verdict != "published" for verdict in published):
            return self.retry_receive(receipt, tries)
        log: tuple[Published, ...] | None = yield Ask(self.reads, (receipt.window,))
        if log is None:
            return self.retry_receive(receipt, tries)
        yield from self.wait(
            tuple(
                p.split for p in log if p.split is not None and p.receipt.window == receipt.window
            )
        )
        return Again("receive", (receipt, tries))

    def wait(self, splits: tuple[int, ...]) -> Program:
        """Waits until readers see the rows of splits."""
        yield Ask("shown", (splits,))
        return None

    def publish_split(self, me: str, receipt: Receipt, split: int, tries: int = 1) -> Program:
        """Publishes a split, unless an attempt has published it."""
        name = self.id_of(me, receipt, split)
        epoch = yield Ask("init", (name,))
        log = yield Ask(self.reads, (receipt.window,))
        if log is None:
            return "unknown"
        if (
            is_published(log, receipt, split)
            or newest(receipt.window, receipts_in(log)) is not None
        ):
            return "published"
        reply = yield from self.transaction(name, epoch, Published(receipt, split))
        if reply == "ok":
            return "published"
        if reply in self.settled_by_a_fence and tries > 1:
            return Again("publish_split", (receipt, split, tries - 1))
        return "unknown"

    def receive(self, me: str, receipt: Receipt, tries: int) -> Program:
        """Writes the receipt, unless another one is there."""
        epoch = yield Ask("init", (TABLE,))
        log = yield Ask(self.reads, (receipt.window,))
        if log is None:
            return self.retry_receive(receipt, tries)
        verdict = self.judge_receipt(receipt, receipts_in(log))
        if verdict is not None:
            return verdict
        reply = yield from self.transaction(TABLE, epoch, Published(receipt, None))
        if reply in self.settled_by_a_fence and tries > 1:
            return Again("receive", (receipt, tries - 1))
        return ("Done", receipt) if reply == "ok" else self.retry_receive(receipt, tries)

    def retry_receive(self, receipt: Receipt, tries: int) -> Hashable:
        """Starts again: messages were not delivered, or an open transaction took too long."""
        return Again("commit", (receipt, tries - 1)) if tries > 1 else ("Unknown",)

    def judge_receipt(self, receipt: Receipt, receipts: tuple[Receipt, ...]) -> Hashable:
        """Returns the verdict of a run whose receipt is there already or isn't allowed; None if
        it may be written.
        """
        judgment = judge(receipt, receipts)
        if judgment is None:
            return None
        return (
            ("Refused", judgment)
            if isinstance(judgment, str)
            else ("Done" if judgment == receipt else "AlreadyDone", judgment)
        )

    def transaction(self, name: str, epoch: str, published: Published) -> Program:
        """Sends and commits. The answer is "ok" only if the commit is certain."""
        send_reply = yield Ask("send", (name, epoch, published))
        reply: str = (
            (yield Ask("end", (name, epoch))) if send_reply in self.complete else send_reply
        )
        return reply

    settled_by_a_fence = frozenset({"fenced", "unknown"})
    """Replies after which the run fences, looks and writes again: another run took the id, or a
    commit wasn't answered.
    """

    complete = frozenset({"delivered"})
    """Delivery reports after which a transaction may be committed."""

    def id_of(self, me: str, receipt: Receipt, split: int) -> str:
        """Returns the transactional id of a split. All attempts and all windows share it."""
        return f"part {split}"


def is_published(log: tuple[Published, ...] | None, receipt: Receipt, split: int) -> bool:
    """Returns whether the control topic has a record of the split."""
    return any((p.receipt.window, p.split) == (receipt.window, split) for p in log or ())


def receipts_in(log: tuple[Published, ...]) -> tuple[Receipt, ...]:
    """Returns the receipts in the control topic."""
    return tuple(p.receipt for p in log if p.split is None)


# --- broken twins


class LookBeforeFence(FencedIds):
    """A twin that looks before it fences, so that it misses a commit between."""

    def publish_split(self, me: str, receipt: Receipt, split: int, tries: int = 1) -> Program:
        """Publishes a split in the wrong order."""
        log = yield Ask("control", (receipt.window,))
        if is_published(log, receipt, split):
            return "published"
        name = self.id_of(me, receipt, split)
        epoch = yield Ask("init", (name,))
        return (
            "published"
            if (yield from self.transaction(name, epoch, Published(receipt, split))) == "ok"
            else "unknown"
        )


class RandomId(FencedIds):
    """A twin whose attempts each have their own id, which fences no other attempt."""

    def id_of(self, me: str, receipt: Receipt, split: int) -> str:
        """Returns an id with the attempt's name."""
        return f"{receipt.attempt}'s part {split}"


class ReceiptBeforeItsRows(FencedIds):
    """A twin that writes the receipt when the control topic has the splits, although readers
    may not see their rows yet.
    """

    def wait(self, splits: tuple[int, ...]) -> Program:
        """Waits for nothing."""
        return None
        yield


class IgnoresReports(FencedIds):
    """A twin that commits whatever the delivery reports say."""

    complete = frozenset({"delivered", "not delivered"})


class LookOnceInAFence(FencedIds):
    """A twin that, after a commit without an answer, fences and writes again without a look."""

    def publish_split(self, me: str, receipt: Receipt, split: int, tries: int = 1) -> Program:
        """Publishes a split, and looks only the first time."""
        name = self.id_of(me, receipt, split)
        epoch = yield Ask("init", (name,))
        log = yield Ask("control", (receipt.window,))
        if is_published(log, receipt, split):
            return "published"
        if (yield from self.transaction(name, epoch, Published(receipt, split))) == "ok":
            return "published"
        epoch = yield Ask("init", (name,))
        return (
            "published"
            if (yield from self.transaction(name, epoch, Published(receipt, split))) == "ok"
            else "unknown"
        )


class ReceiptFirst(FencedIds):
    """A twin that writes the receipt before the splits: a death in between leaves a receipt
    without rows.
    """

    def commit(self, me: str, receipt: Receipt, tries: int = 1) -> Program:
        """Commits in the wrong order."""
        verdict = yield from self.receive(me, receipt, tries)
        if verdict == ("Done", receipt):
            yield Start(
                tuple((f"{me}.{split}", "publish_split", (receipt, split)) for split in SPLITS)
            )
        return verdict


class ForgetsTheLedger(FencedIds):
    """A twin that publishes a window that the control topic doesn't have, even if the ledger
    has its receipt.
    """

    asks_the_ledger = False


class ReadsOnBehindACut(FencedIds):
    """A twin whose process reads on from its position in a control topic that was cut off, and
    skips the others' records.
    """

    sees, reads = "glance_kept", "control_kept"
