"""The Kafka sink with a recorder around what it asks of a broker; see `tests.protocols.traces`.

What is asked tells a run's steps:

    init      a transactional id is fenced
    glance    the control topic is read as far as it is decided
    control   it is read to its end; the recorder lets others go on as long as something there is
              open, which this would wait for
    send      rows and their records: one step, which nobody sees before the commit. Told when the
              records are sent, or if rows fail
    end       a commit
    shown     rows are waited for
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from tests.protocols.fenced import TABLE
from tests.protocols.traces import UNDECIDED, Recorder, splits_text
from tests.sinks.kafka.world import KafkaBoth
from tests.sinks.traced import Recorded
from windrow.ingest.errors import UnreachableError
from windrow.ingest.kafka.transaction import Sending, TransactionError
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import Outcome
from windrow.ingest.sinks.kafka import parts, unfinished
from windrow.ingest.sinks.kafka import sink as sinks
from windrow.ingest.sinks.kafka.control import Record
from windrow.ingest.sinks.kafka.parts import Part, chains
from windrow.ingest.sinks.kafka.publish import PublishTarget, put_records
from windrow.ingest.sinks.kafka.work import WindowWork


class Listening(msgspec.Struct, frozen=True):
    """To one run. `names`: what the model calls transactional ids."""

    recorder: Recorder
    who: str
    names: Mapping[str, str]

    def to(self, sender: Sending, name: str) -> None:
        """From now on, to a producer."""
        fence, commit, at = sender.fence, sender.commit, self.names.get(name, name)

        def fenced(known: str) -> None:
            with self.recorder.step(self.who, "init", at) as reply:
                fence(known)
                reply(None)

        def committed() -> None:
            with self.recorder.step(self.who, "end", at) as reply:
                try:
                    commit()
                except TransactionError as error:
                    reply("unknown" if error.sent else error.kind)
                    raise
                reply("ok")

        sender.fence, sender.commit = fenced, committed  # type: ignore[method-assign]
        sender.sends = self._sends(at)  # type: ignore[attr-defined]

    def _sends(self, at: str) -> Callable[[str, Callable[[], None] | TransactionError], None]:
        def sends(what: str, send: Callable[[], None] | TransactionError) -> None:
            with self.recorder.step(self.who, "send", f"{at}: {what}") as reply:
                try:
                    if isinstance(send, TransactionError):
                        raise send
                    send()
                except TransactionError as error:
                    reply("fenced" if error.kind == "fenced" else "not delivered")
                    raise
                reply("delivered")

        return sends


class ListenedTo(PublishTarget, frozen=True, kw_only=True):
    """Each of its producers is."""

    listening: Listening

    def sender(self, name: str) -> Sending:
        made = super().sender(name)
        self.listening.to(made, name)
        return made


class _Recorded(Recorded):
    names: Mapping[str, str] = MappingProxyType({})

    def listened_to(self, recorder: Recorder, who: str) -> Any:
        topics: Any = self._topics  # type: ignore[attr-defined]
        seen = topics.wait_until_seen

        def waited(written: Any) -> None:
            with recorder.step(who, "shown") as reply:
                seen(written)
                reply(None)

        topics.wait_until_seen = waited
        return super().listened_to(recorder, who)

    def commit_dead(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        super(Recorded, self).commit_dead(plan, attempt, staged)  # type: ignore[misc]  # they are kept before the model begins

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        ids, every = self._ids, [part for chain in chains(receipt.plan) for part in chain]  # type: ignore[attr-defined]
        self.names = {ids.table(receipt.window.pipeline): TABLE} | {
            ids.part(receipt.window, p): f"lane {p[0]}" for p in every
        }
        return super().commit(receipt, staged)

    def _target(self) -> PublishTarget:
        target: PublishTarget = super()._target()  # type: ignore[misc]
        return ListenedTo(
            **msgspec.structs.asdict(target),
            listening=Listening(self.recorder, self.who, self.names),
        )

    def _look(self, work: WindowWork, *, to_end: bool = True) -> Any:
        began, patience = time.monotonic(), self._control._patience  # type: ignore[attr-defined]

        def once() -> bool:
            return not to_end or self._is_decided() or time.monotonic() > began + patience

        with self.recorder.step(self.who, "control" if to_end else "glance", once=once) as reply:
            try:
                committed, published = super()._look(work, to_end=to_end)  # type: ignore[misc]
            except UnreachableError:
                reply(UNDECIDED)
                raise
            held = None if committed is None else committed.receipt.attempt
            if to_end:
                reply(held or splits_text({n: split.attempt for n, split in published.items()}))
            else:
                reply(held, "whole" if self._control.is_decided else UNDECIDED)  # type: ignore[attr-defined]
        return committed, published

    def _is_decided(self) -> bool:
        """Whether nothing is open in the control topic."""
        stable, end = self._topics.stable_and_end()[self.options.control, 0]  # type: ignore[attr-defined]
        return bool(stable == end)

    def _pumped(
        self, work: WindowWork, target: PublishTarget, transaction: Any, numbers: Any
    ) -> Any:
        try:
            return super()._pumped(work, target, transaction, numbers)  # type: ignore[misc]
        except TransactionError as error:
            transaction.sends(_splits(numbers), error)
            raise


class RecordedKafka(_Recorded, KafkaBoth):
    """The sink itself."""


def recorded(twin: type[KafkaBoth]) -> type[Any]:
    """A twin of it."""
    return type(twin.__name__, (_Recorded, twin), {})


def _splits(numbers: Sequence[int] | Part) -> str:
    return ", ".join(f"split {n}" for n in numbers)


def _put(
    target: PublishTarget,
    transaction: Any,
    records: Sequence[Record],
    headers: Sequence[tuple[str, bytes]] = (),
) -> None:
    """As `put_records`, told."""
    if not isinstance(target, ListenedTo):
        put_records(target, transaction, records, headers)
        return
    keys = [msgspec.json.decode(key) for key, value in records if value is not None]
    what = (
        "receipt" if any(key[0] == "receipt" for key in keys) else _splits([key[2] for key in keys])
    )
    transaction.sends(what, lambda: put_records(target, transaction, records, headers))


def record_the_wire(patch: pytest.MonkeyPatch, beside: int = 1) -> None:
    """From now on, in this process.

    Each split has a transaction of its own; `beside`: how many run at the same time.
    """
    patch.setattr(sinks, "put", _put)
    patch.setattr(sinks, "_BESIDE", beside)
    patch.setattr(unfinished, "_BESIDE", 1)  # in one order, as the model does
    patch.setattr(parts, "SMALL", 1)
