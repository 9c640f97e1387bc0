"""Transactional ids: Kafka.

Each split is published by a transaction of its own, with a record that says so in the
same transaction; then the window's receipt by the table's own id. `init` under an id
fences whoever had it before: what that one had open is aborted, and what it was
committing is waited for. A commit is answered before readers see it, topic by topic:
the control topic's record first, then the rows. (That they see rows first is as good as
both at once: nobody asks for rows whose record isn't there.)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from tests.protocols.explore import Again, Ask, Process, Program, Scenario, Start
from tests.protocols.world import SPLITS, Receipt, SinkProtocol, World, begin_world, judge, newest

TABLE = "table"
"""The id that receipts are written under."""

CONTROL, ROWS = "the control topic", "the rows"
"""What readers see one after the other."""


class Published(NamedTuple):
    """What one transaction brings: a split's rows and their record, or the receipt.

    `rows`: whether all of them were delivered.
    """

    receipt: Receipt
    split: int | None
    rows: bool = True

    def __str__(self) -> str:
        return f"{self.receipt}{'' if self.split is None else f', split {self.split}'}"


class Turn(NamedTuple):
    """A transactional id.

    `open`: what its transaction holds; `hidden`: the topics whose readers don't see it
    yet, once it is decided.

    `epoch`: who fenced it last, for that is all that is asked of one; nobody, if the broker did.
    """

    id: str
    epoch: str = ""
    open: Published | None = None
    hidden: tuple[str, ...] = ()


class Broker(NamedTuple):
    """What read_committed readers see: `log` of the control topic, `rows` of that of the rows.

    In what order, nobody asks.

    `gives_up`: whether who reads the control topic to its end gives up on what is open.
    Where all is explored, nobody does: who gives up leaves what one leaves who dies
    there. `copies`: the windows of which the ledger has a copy of the receipt; none, if
    the log isn't cut off here. `log_before_cut`: the log as it was before it was cut off.
    """

    log: tuple[Published, ...] = ()
    rows: tuple[Published, ...] = ()
    turns: tuple[Turn, ...] = ()
    expiries: int = 1
    gives_up: bool = False
    copies: frozenset[int] = frozenset()
    log_before_cut: tuple[Published, ...] | None = None


class Glance(NamedTuple):
    """The control topic as far as it is decided; `is_decided`: whether that is all of it."""

    receipts: tuple[Receipt, ...]
    is_decided: bool

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.receipts)) or 'no receipt'}{'' if self.is_decided else ', and what is behind is undecided'}"  # noqa: E501


class BrokerWorld(World):
    """One cluster."""

    def receipts(self) -> tuple[Receipt, ...]:
        """See `World.receipts`."""
        return tuple(p.receipt for p in self.store.log if p.split is None)

    def decided(self) -> tuple[Receipt, ...]:
        """Those of transactions that are being committed, too."""
        return self.receipts() + tuple(
            t.open.receipt for t in self.store.turns if t.hidden and t.open and t.open.split is None
        )

    def rows(self) -> Iterator[tuple[tuple[int, int], Receipt]]:
        """See `World.rows`."""
        return (
            (m, p.receipt)
            for p in self.store.rows
            if p.rows
            for m in p.receipt.messages()
            if m[0] == p.split
        )

    def coming(self) -> Iterator[tuple[int, int]]:
        """See `World.coming`."""
        decided = (t.open for t in self.store.turns if ROWS in t.hidden)
        return (m for p in decided if p.rows for m in p.receipt.messages() if m[0] == p.split)

    def _turn(self, name: str) -> Turn:
        return next((t for t in self.store.turns if t.id == name), Turn(name))

    def _take(self, turn: Turn, **changed: Any) -> Any:
        rest = [t for t in self.store.turns if t.id != turn.id]
        turns = tuple(sorted([*rest, turn], key=lambda t: t.id))
        return self._replace(store=self.store._replace(turns=turns, **changed))

    def init(self, who: str, name: str) -> list[tuple[str, Any]]:
        """The next epoch of an id: it aborts what is open, and waits for what is being
        committed.
        """
        epoch = who
        while ("end", name, epoch) in self.flying:
            epoch += " again"
        return [] if self._turn(name).hidden else [(epoch, self._take(Turn(name, epoch)))]

    def glance(self, who: str, window: int) -> list[tuple[Glance, Any]]:
        """The control topic up to the first record that isn't decided: what lies behind
        that one isn't seen.
        """
        is_decided = not any(t.open for t in self.store.turns)
        view = Glance(self.receipts(), is_decided)
        return (
            [(view, self)]
            if is_decided or not view.receipts
            else [(view, self), (Glance((), is_decided), self)]
        )

    def _known_log(self, who: str) -> tuple[Published, ...]:
        """For a twin: what a process knows that reads on where it stood before the log was cut off.

        What others wrote since is below.
        """
        if self.store.log_before_cut is None:
            return self.store.log
        return self.store.log_before_cut + tuple(
            p for p in self.store.log if p.receipt.attempt == who
        )

    def glance_kept(self, who: str, window: int) -> list[tuple[Glance, Any]]:
        """For that twin, as `glance`."""
        return [
            (view._replace(receipts=receipts_in(self._known_log(who))), world)
            for view, world in self.glance(who, window)
        ]

    def control_kept(self, who: str, window: int) -> list[tuple[tuple[Published, ...] | None, Any]]:
        """For that twin, as `control`."""
        return [
            (None if log is None else self._known_log(who), world)
            for log, world in self.control(who, window)
        ]

    def copy(self, who: str, window: int) -> list[tuple[bool, Any]]:
        """Returns whether the ledger has a copy of the window's receipt."""
        return [(window in self.store.copies, self)]

    def control(self, who: str, window: int) -> list[tuple[tuple[Published, ...] | None, Any]]:
        """The control topic, read to its end: what is being committed is waited for.

        What is open is, too, but not for ever: None.

        That it isn't waited for, where it began behind the end that is read to, is one
        more outcome.
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
        """Rows and their record.

        A report may say that rows were not delivered: they are not in the transaction.
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
        """Commit. The answer can be lost; so can the request, or it is under way."""
        turn = self._turn(name)
        if turn.epoch != epoch or turn.open is None or turn.hidden:
            return [("fenced", self)]
        arrived, late = (
            self.arrives(("end", name, epoch)),
            self._replace(flying=self.flying | {("end", name, epoch)}),
        )
        return [("ok", arrived), ("unknown", arrived), ("unknown", late)]

    def shown(self, who: str, splits: tuple[int, ...]) -> list[tuple[None, Any]]:
        """Wait until readers see these splits' rows: the topics' ends for them are
        behind the last row that was delivered.
        """
        hidden = {t.open.split for t in self.store.turns if t.open and ROWS in t.hidden}
        return [(None, self)] if hidden.isdisjoint(splits) else []

    def arrives(self, request: Any) -> Any:
        """See `World.arrives`: a commit of an older epoch is refused."""
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
        """The broker shows what is decided, and aborts what is open for too long."""
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
    """Glance; fence, look, write: for each split; look, and wait until readers see the
    splits; fence, look, write the receipt.
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
        """See `SinkProtocol.decided`."""
        receipts: tuple[Receipt, ...] = world.decided()
        return receipts

    def find_loss(self, old_world: World, new_world: World) -> str | None:
        """See `SinkProtocol.lost`; a crash that cuts the control topic off is nobody's step."""
        cut = old_world.store.log_before_cut is None and new_world.store.log_before_cut is not None
        return None if cut else super().find_loss(old_world, new_world)

    sees, reads = "glance", "control"
    """What is asked about the control topic, before a fence and behind it."""

    asks_the_ledger = True
    """True if a copy of the receipt forbids a window that the control topic doesn't have."""

    def commit(self, me: str, receipt: Receipt, tries: int = 1) -> Program:
        """See `SinkProtocol.commit`.

        What a dead run left open is ended first: else it would be waited for, and
        fenced only later.

        The ledger is asked by the run, not by the sink: see
        `ingest.runner.ownership.refuse_lost_receipt`. A crash that cuts the topic off
        behind that, while somebody publishes, isn't in the model.
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
        """The splits at the same time; then their rows are seen before the receipt is written."""
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
        """Until readers see rows."""
        yield Ask("shown", (splits,))
        return None

    def publish_split(self, me: str, receipt: Receipt, split: int, tries: int = 1) -> Program:
        """One split, if no attempt has published it."""
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
        """The receipt, once nothing stands in its way."""
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
        """Messages were not delivered, or something open isn't waited for any longer: from the
        top.
        """
        return Again("commit", (receipt, tries - 1)) if tries > 1 else ("Unknown",)

    def judge_receipt(self, receipt: Receipt, receipts: tuple[Receipt, ...]) -> Hashable:
        """What a run says if there is a receipt in the place of its own, or it may not be there."""
        judgment = judge(receipt, receipts)
        if judgment is None:
            return None
        return (
            ("Refused", judgment)
            if isinstance(judgment, str)
            else ("Done" if judgment == receipt else "AlreadyDone", judgment)
        )

    def transaction(self, name: str, epoch: str, published: Published) -> Program:
        """Send and commit: "ok" only if it surely is."""
        send_reply = yield Ask("send", (name, epoch, published))
        reply: str = (
            (yield Ask("end", (name, epoch))) if send_reply in self.complete else send_reply
        )
        return reply

    settled_by_a_fence = frozenset({"fenced", "unknown"})
    """Another run took the id, or a commit was not answered: fence, look, write again."""

    complete = frozenset({"delivered"})
    """Reports after which a transaction may be committed."""

    def id_of(self, me: str, receipt: Receipt, split: int) -> str:
        """The same for all attempts, and one that windows share."""
        return f"part {split}"


def is_published(log: tuple[Published, ...] | None, receipt: Receipt, split: int) -> bool:
    """Returns whether the control topic says so of a split of a receipt's window."""
    return any((p.receipt.window, p.split) == (receipt.window, split) for p in log or ())


def receipts_in(log: tuple[Published, ...]) -> tuple[Receipt, ...]:
    """Those that the control topic has."""
    return tuple(p.receipt for p in log if p.split is None)


# --------------------------------------------------------------------------------------------------


class LookBeforeFence(FencedIds):
    """Looks, then fences: what was committing meanwhile isn't seen."""

    def publish_split(self, me: str, receipt: Receipt, split: int, tries: int = 1) -> Program:
        """The wrong order."""
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
    """Each attempt has an id of its own, which fences nobody."""

    def id_of(self, me: str, receipt: Receipt, split: int) -> str:
        """By the attempt."""
        return f"{receipt.attempt}'s part {split}"


class ReceiptBeforeItsRows(FencedIds):
    """Writes the receipt when the control topic says that the splits are published:
    their rows may not be seen yet.
    """

    def wait(self, splits: tuple[int, ...]) -> Program:
        """For nothing."""
        return None
        yield


class IgnoresReports(FencedIds):
    """Commits whatever the delivery reports say."""

    complete = frozenset({"delivered", "not delivered"})


class LookOnceInAFence(FencedIds):
    """After a commit that was not answered it fences, and writes again without a look."""

    def publish_split(self, me: str, receipt: Receipt, split: int, tries: int = 1) -> Program:
        """Looks at the first time only."""
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
    """The receipt, then the splits: who dies in between leaves a receipt without its rows."""

    def commit(self, me: str, receipt: Receipt, tries: int = 1) -> Program:
        """The wrong order."""
        verdict = yield from self.receive(me, receipt, tries)
        if verdict == ("Done", receipt):
            yield Start(
                tuple((f"{me}.{split}", "publish_split", (receipt, split)) for split in SPLITS)
            )
        return verdict


class ForgetsTheLedger(FencedIds):
    """Takes a window that the control topic doesn't have for one that wasn't published,
    whatever the ledger has a copy of.
    """

    asks_the_ledger = False


class ReadsOnBehindACut(FencedIds):
    """A process that goes on where it stood in the control topic, though that was cut
    off since: what others wrote there it passes over.
    """

    sees, reads = "glance_kept", "control_kept"
