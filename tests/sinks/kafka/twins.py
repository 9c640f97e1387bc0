"""Broken twins of the Kafka sink, each one step from the real one.

A suite that can't tell them apart proves nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from tests.sinks.kafka.world import KafkaBoth, at
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.kafka.transaction import Transaction
from windrow.ingest.model.window import Window
from windrow.ingest.sinks.kafka.control import PublishedSplit, split_record
from windrow.ingest.sinks.kafka.ids import TransactionalIds
from windrow.ingest.sinks.kafka.parts import Part
from windrow.ingest.sinks.kafka.publish import PublishTarget, put_records, turn
from windrow.ingest.sinks.kafka.work import WindowWork


class LookBeforeFence(KafkaBoth):
    """What it looked at before its fence it takes for true behind it: another run may
    have published in between.
    """

    def _publish_part(self, work: WindowWork, target: PublishTarget, part: Any) -> None:
        before = self._look(work)
        look, self._look = self._look, lambda _work, **_: before  # type: ignore[method-assign]
        try:
            self.meanwhile()
            super()._publish_part(work, target, part)
        finally:
            self._look = look  # type: ignore[method-assign]

    def meanwhile(self) -> None:
        """The other run gets its turn."""


class _RandomIds(TransactionalIds, frozen=True):
    def part(self, window: Window, part: Part) -> str:
        return f"{super().part(window, part)}.{uuid.uuid4().hex}"


class RandomId(KafkaBoth):
    """A transactional id of the attempt's own fences nobody."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._ids = _RandomIds(self.options.prefix, self.options.control, self.options.lanes)

    def _pumped(
        self, work: WindowWork, target: PublishTarget, transaction: Transaction, numbers: Any
    ) -> list[Any]:
        records = super()._pumped(work, target, transaction, numbers)
        self.meanwhile()
        return records

    def meanwhile(self) -> None:
        """The other run gets its turn."""


class NoRecord(KafkaBoth):
    """Publishes messages without the record that they are published."""

    def _pumped(
        self, work: WindowWork, target: PublishTarget, transaction: Transaction, numbers: Any
    ) -> list[Any]:
        super()._pumped(work, target, transaction, numbers)
        return []

    def _look(self, work: WindowWork, *, to_end: bool = True) -> Any:
        committed, _ = super()._look(work, to_end=to_end)
        return committed, {}

    def _close(
        self, work: WindowWork, target: PublishTarget, published: Mapping[int, PublishedSplit]
    ) -> Any:
        return super()._close(work, target, {n: work.published(n, ()) for n in work.files})


class RecordFirst(KafkaBoth):
    """Of a table without transactions: a split's record is written before its messages are."""

    def _publish_part(self, work: WindowWork, target: PublishTarget, part: Part) -> None:
        with turn(target, self._ids.part(work.receipt.window, part)) as sender:
            committed, published = self._look(work)
            todo = [n for n in part if n in work.files and n not in published]
            if committed is None and todo:
                put_records(target, sender, [split_record(work.published(n, ())) for n in todo])
                crash_point("split.before")
                self._sent(work, target, sender, todo)
                crash_point("split.after")


TWINS: Mapping[str, Callable[[str], Any]] = {
    twin.__name__: lambda place, twin=twin: at(place, twin)
    for twin in (LookBeforeFence, RandomId, NoRecord)
}
