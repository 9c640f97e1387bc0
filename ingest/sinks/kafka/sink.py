"""The Kafka sink: rows become messages, exactly once for each split of a window; or,
with `atomic_window`, for each window.

Tasks stage the messages where no reader sees them, so that a window is refused before
anything of it is visible. The driver publishes:

    look      at the control topic: is the window there, does it join on, does another one hold its
              offsets
    each split, some beside each other, those of one topic-partition in their order
      fence   its transactional id, the same for every attempt: what an earlier one left open is
              ended, what it decided is waited for
      look    again: is the split published, is the window
      write   its messages and the record that they are published, in one transaction
    receipt   fence the table's transactional id, look, write: one window at a time

Race of two runs of one split:  1 A fences, looks, writes.  2 B fences: A's transaction
is ended.  3 B looks, writes, commits.  4 A's commit is refused; it looks, finds B's
record and passes the split over.  Had B looked before it fenced, A could commit in
between, and B would write again.

What is published can't be taken back. So a split that is there counts, whichever
attempt published it, if it has the same rows; one that has others refuses the window.
Nothing of a window is published twice, but readers see it split by split; that it is
whole the receipt says.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TypeVar

import pyarrow as pa

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.kafka.client import admin_properties, consumer_properties
from windrow.ingest.kafka.retry import PATIENCE_SECONDS
from windrow.ingest.kafka.transaction import Sending
from windrow.ingest.kafka.wire import reachable
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.owner import TableOwner, refuse_other_owner
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import AlreadyDone, Audit, Capabilities, Done, Outcome, Unknown
from windrow.ingest.schema.load import function_now
from windrow.ingest.schema.metadata import refuse_wrong
from windrow.ingest.sinks.kafka.control import (
    ControlTopic,
    Held,
    PublishedSplit,
    Record,
    owner_record,
    parts_of,
    receipt_records,
    split_record,
)
from windrow.ingest.sinks.kafka.form import MessageForm, of_columns
from windrow.ingest.sinks.kafka.function import PartitionFunction
from windrow.ingest.sinks.kafka.ids import TransactionalIds
from windrow.ingest.sinks.kafka.options import Options, Reach, addresses
from windrow.ingest.sinks.kafka.parts import Part, chains
from windrow.ingest.sinks.kafka.publish import Overtaken, PublishTarget, UnansweredCommit, turn
from windrow.ingest.sinks.kafka.publish import put_records as put
from windrow.ingest.sinks.kafka.send import sent
from windrow.ingest.sinks.kafka.stage import KafkaStagerFactory, StagedFiles
from windrow.ingest.sinks.kafka.topics import SinkTopics
from windrow.ingest.sinks.kafka.unfinished import KafkaTransactions, end_open
from windrow.ingest.sinks.kafka.work import (
    WindowWork,
    judged,
    last_places,
    no_other_generation,
    refuse_out_of_order,
)
from windrow.ingest.sinks.staging import RowLayout
from windrow.ingest.sinks.write_check import refuse_unwritable

T = TypeVar("T")

_LEAST = timedelta(hours=1)
_BESIDE = 8
"""Transactions that run beside each other."""

_TRIES = 12
"""How often a window is begun again because another run took its id."""

_WAIT_SECONDS = 0.5


class KafkaSink:
    """`ports.sink.Sink` on topics of a cluster.

    Args:
        reach: the cluster.
        options: what the spec says.
        schema: the columns of a row, without the ones that windrow adds; or what loads
            them, called at the first write.
        metadata: those that it adds, by name: headers of the messages, under the
            columns' names.
        patience_seconds: how long the cluster may be silent.

    Raises:
        SpecError: the client properties can't be used, or metadata columns can't be called that.
    """

    def __init__(
        self,
        reach: Reach,
        options: Options,
        schema: pa.Schema | Callable[[], pa.Schema],
        metadata: Mapping[str, str] = DEFAULT,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        refuse_wrong(schema.names if isinstance(schema, pa.Schema) else (), metadata)
        self.reach, self.options, self.metadata = reach, options, dict(metadata)
        self.capabilities = Capabilities(
            "window" if options.atomic_window else "split",
            replaces=False,
            mode="changes" if options.primary_key else "append",
            delivery=options.delivery,
        )
        self._load, self.patience = schema, patience_seconds
        self._admin = admin_properties(reach.servers, reach.client)
        consumer = consumer_properties(reach.servers, reach.client)
        self._topics = SinkTopics(
            reach.servers, self._admin, options.topics, options.control, patience_seconds
        )
        self._control = ControlTopic(
            options.control, self._topics, self._admin, consumer, patience_seconds
        )
        self._files = StagedFiles(options.staging)
        self._ids = TransactionalIds(options.prefix, options.control, options.lanes)
        self._one_by_one = False

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a row, without the ones that windrow adds."""
        loaded = self._load() if callable(self._load) else self._load
        refuse_wrong(loaded.names, self.metadata)
        return loaded

    @cached_property
    def form(self) -> MessageForm:
        """What a row becomes.

        Raises:
            SpecError: a column that the spec names isn't there, or can't be written so.
        """
        options = self.options
        metadata = {column: column for name, column in self.metadata.items() if name != "window"}
        form = MessageForm(
            of_columns(options.value, self.schema.names),
            options.key,
            {**metadata, **options.headers},
            self.metadata["window"],
            self.metadata.get("attempt"),
            options.time,
            options.topic_column,
            options.topics,
            options.primary_key,
        )
        form.refuse_unfit(self._columns)
        return form

    @property
    def _columns(self) -> pa.Schema:
        """The columns of a row that messages are made of, with the metadata's."""
        return RowLayout(self.schema, self.metadata, "").schema

    @property
    def identity(self) -> str:
        """The control topic is the table."""
        return f"kafka:{','.join(sorted(addresses(self.reach.servers)))}/{self.options.control}"

    def is_at(self, identity: str) -> bool:
        """One address in common is enough to know that a cluster is the same."""
        servers, _, control = identity.removeprefix("kafka:").partition("/")
        return control == self.options.control and not addresses(servers).isdisjoint(
            addresses(self.reach.servers)
        )

    def refuse_unwritable(self) -> None:
        refuse_unwritable(self.options.staging, "sink.staging")
        self._topics.refuse_unfit(self.options.delivery, self.options.timeout)
        self.form.refuse_unregistrable(self._columns, self.reach.registry)

    def warnings(self) -> list[str]:
        return self._topics.changelog_warnings() if self.options.primary_key else []

    def places(self) -> Sequence[str]:
        return [self.options.staging]

    def owner(self) -> TableOwner | None:
        return self._control.read(lambda held: held.owner)

    def prepare(self, owner: TableOwner) -> None:
        """Makes the control topic, never another one."""
        self._refuse_unfit()
        bound = self.owner()
        if bound is None:
            self._topics.refuse_unfit(self.options.delivery, self.options.timeout)
            self._topics.make_control()
            self._write(
                owner.pipeline,
                lambda held: [] if held.owner is not None else [owner_record(owner)],
            )
            bound = self.owner() or owner
        refuse_other_owner(self.identity, bound, owner)

    def _refuse_unfit(self) -> None:
        self.form  # noqa: B018
        if self.options.function is not None:
            function_now(self.options.function)

    def columns_to_come(self) -> Sequence[str]:
        """Messages have no table's columns."""
        self._refuse_unfit()
        return ()

    def look(self, window: Window) -> Committed | None:
        return next(self.looks([window]))

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        if not windows:
            return iter(())
        found = self._control.read(lambda held: [held.committed(window.key) for window in windows])
        return iter([None] * len(windows) if found is None else found)

    def committed(self, windows: Sequence[Window]) -> set[Window]:
        keys = (
            self._control.read(lambda held: held.windows.keys() | held.damaged.keys())
            if windows
            else None
        )
        return {window for window in windows if window.key in (keys or ())}

    def wait_until_decided(self) -> None:
        """An open transaction of another run holds back what stands behind it in the
        control topic.
        """
        self._control.read(lambda _: None, to_end=True)

    def receipts(self) -> Iterator[Committed]:

        def every(held: Held) -> list[Committed | None]:
            held.refuse_deleted()
            return [
                held.committed(key) for key in sorted(held.windows.keys() | held.damaged.keys())
            ]

        found = self._control.read(every)
        return iter(
            sorted((c for c in found or () if c is not None), key=lambda c: c.receipt.window)
        )

    def receipt_text(self, receipt: Receipt) -> str:
        key = receipt.window.key
        kept = self._control.read(lambda held: held.windows.get(key))
        return kept.text if kept is not None else to_json(receipt)

    def stager(self, plan: Plan, generation: int, attempt: str) -> KafkaStagerFactory:
        del generation
        layout = RowLayout(self.options.staged(self.schema), self.metadata, attempt)
        form = self.form.registered(self._columns, self.reach.registry)
        return KafkaStagerFactory(
            self.options.staging, layout, form, plan.window.key, self._function()
        )

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """Where a split was published by an earlier attempt, the receipt has the checksum of its rows.

        Raises:
            RefusedError: besides, a split was published with other rows, or the topic
                doesn't take a message.
        """  # noqa: E501
        work, sent = WindowWork.of(receipt, staged), False
        self._one_by_one = False

        def publish() -> Outcome:
            nonlocal sent
            try:
                return self._publish(work)
            except UnansweredCommit:
                sent = True
                raise

        def attempt() -> Outcome:
            try:
                return publish()
            except UnreachableError:
                if self._one_by_one or self.options.delivery == "none":
                    raise
                self._one_by_one = True  # which tells what was not taken
                return publish()

        try:
            outcome = self._again(attempt)
        except UnreachableError as error:
            if sent:
                return Unknown(error.what)
            raise
        mine = (
            isinstance(outcome, AlreadyDone)
            and outcome.committed.receipt.attempt == receipt.attempt
        )
        return Done(outcome.committed) if sent and mine else outcome  # type: ignore[union-attr]

    def audit(self) -> Audit:
        from windrow.ingest.sinks.kafka.audit import KafkaAudit

        return KafkaAudit(self)

    def transactions(self) -> KafkaTransactions:
        if self.options.delivery != "exactly-once":
            what = (
                f"The table {self.identity} is written without transactions: delivery_guarantee is"
                f" {self.options.delivery}"
            )
            raise SpecError(what, "spec", "There is nothing to list, and nothing to abort.")
        return KafkaTransactions(
            self.reach,
            self._topics,
            self._ids,
            self._target,
            self.metadata["window"],
            self.patience,
        )

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """An attempt whose files are gone is refused before it publishes what was in them."""
        if older_than < _LEAST:
            raise ValueError(
                f"a grace period of {older_than} would take the files of runs that are still"
                f" staging; the least is {_LEAST}"
            )
        cutoff = int((datetime.now(UTC) - older_than).timestamp() * 1000)
        return self._files.sweep(cutoff, dry_run=dry_run)

    def bind_again(self, receipt: Receipt) -> None:
        """Put the owner back, which a receipt says too, where the control topic has
        lost it, or is gone itself.
        """
        self._topics.make_control()
        owner = TableOwner(receipt.window.pipeline, receipt.ledger, receipt.grid)

        def lost(held: Held) -> list[Record]:
            return [] if held.is_bound else [owner_record(owner, held.start)]

        self._write(owner.pipeline, lost)

    def put_back(self, receipt: Receipt, text: str, splits: tuple[PublishedSplit, ...]) -> None:
        """Put a receipt back by its exact text, where the control topic has lost it.

        `splits`: what is published of its window.
        """
        key, attempt = (
            receipt.window.key,
            (None if self.options.delivery == "exactly-once" else receipt.attempt),
        )

        def lost(held: Held) -> list[Record]:
            return (
                []
                if key in held.windows.keys() - held.damaged.keys()
                else [*receipt_records(key, text, splits, attempt)]
            )

        self._write(receipt.window.pipeline, lost)

    def _write(self, pipeline: str, lacks: Callable[[Held], list[Record]]) -> None:
        """What the control topic lacks, by a look behind the table's fence."""

        def write() -> None:
            target = self._target()
            with turn(target, self._ids.table(pipeline)) as transaction:
                records = self._control.read(lacks, to_end=True)
                if records is None:
                    what = (
                        f"The control topic {self.options.control} isn't known to the cluster yet"
                    )
                    raise UnreachableError(
                        what, "commit", "Nothing was written. Try again in a moment."
                    )
                if records:
                    transaction.begin()
                    put(target, transaction, records, parts_of(records))
                    transaction.commit()

        self._again(write)
        self._control.wait_until_seen(lambda held: not lacks(held))

    @property
    def topics(self) -> SinkTopics:
        """What is asked of its topics."""
        return self._topics

    def in_control(self, view: Callable[[Held], T]) -> T | None:
        """What the control topic says now, for the audit."""
        return self._control.read(view)

    def _again(self, attempt: Callable[[], T]) -> T:
        """A step, begun again when another run took its id: it waits a while first, for
        that run to get done.
        """
        for tried in range(_TRIES):
            try:
                return attempt()
            except Overtaken:
                time.sleep(random.uniform(0.2, 1) * _WAIT_SECONDS * 1.5**tried)  # noqa: S311
        what = f"Other runs took the transactional ids of {self.identity} {_TRIES} times"
        raise UnreachableError(
            what,
            "commit",
            "Is the window being run several times at once? Run it again: it looks first.",
        )

    def _target(self) -> PublishTarget:
        options = self.options
        return PublishTarget(
            self._topics.targets(),
            options.topics[0] if options.topic_column is None else None,
            options.control,
            self._admin,
            options.timeout // timedelta(milliseconds=1),
            options.partitioner,
            self.metadata["window"],
            self.patience,
            options.delivery,
            options.acks,
            options.delivery == "exactly-once" and not self._one_by_one and reachable(self._admin),
        )

    def _function(self) -> PartitionFunction | None:
        options = self.options
        if options.function is None:
            return None
        counts = {name: topic.partitions for name, topic in self._topics.targets().items()}
        return PartitionFunction(
            options.function, counts, options.topics[0] if options.topic_column is None else None
        )

    def _publish(self, work: WindowWork) -> Outcome:
        committed, published = self._look(work, to_end=False)
        if committed is not None:
            return AlreadyDone(committed)
        if work.receipt.generation:
            raise no_other_generation(work.receipt)
        self._files.refuse_gone(
            [file for n, files in work.files.items() if n not in published for file in files]
        )
        target = self._target()
        if not self._control.is_decided and self.options.delivery == "exactly-once":
            # of runs that died: else one would be waited for that is fenced later
            end_open(target, self._ids.of_window(work.receipt.plan))
        if self.options.atomic_window:
            outcome = self._close(work, target, {})
        else:
            self._publish_splits(work, target)
            _, published = self._look(work)
            self._topics.wait_until_seen(last_places(published.values()))
            outcome = self._close(work, target, published)
        if isinstance(outcome, Done):
            self._control.wait_until_seen(lambda held: work.receipt.window.key in held.windows)
            self._files.remove([file for files in work.files.values() for file in files])
        return outcome

    def _publish_splits(self, work: WindowWork, target: PublishTarget) -> None:
        """Each part in a transaction of its own."""
        todo = [
            [part for part in chain if any(n in work.files for n in part)]
            for chain in chains(work.receipt.plan)
        ]
        with ThreadPoolExecutor(max_workers=_BESIDE) as pool:
            # a failure lets none begin after it
            list(
                pool.map(lambda chain: self._publish_chain(work, target, chain), filter(None, todo))
            )

    def _publish_chain(
        self, work: WindowWork, target: PublishTarget, chain: Sequence[Part]
    ) -> None:
        for part in chain:
            self._publish_part(work, target, part)

    def _publish_part(self, work: WindowWork, target: PublishTarget, part: Part) -> None:
        with turn(target, self._ids.part(work.receipt.window, part)) as transaction:
            committed, published = self._look(work)  # behind the fence
            todo = [n for n in part if n in work.files and n not in published]
            if committed is not None or not todo:
                return
            transaction.begin()
            put(target, transaction, self._pumped(work, target, transaction, todo))
            crash_point("split.before")
            transaction.commit()
            crash_point("split.after")

    def _pumped(
        self, work: WindowWork, target: PublishTarget, transaction: Sending, numbers: Sequence[int]
    ) -> list[Record]:
        """The records of splits whose messages are all written."""
        return [split_record(split) for split in self._sent(work, target, transaction, numbers)]

    def _sent(
        self, work: WindowWork, target: PublishTarget, transaction: Sending, numbers: Sequence[int]
    ) -> list[PublishedSplit]:
        return sent(
            self._topics.ends,
            self._files,
            work,
            target,
            transaction,
            numbers,
            one_by_one=self._one_by_one,
        )

    def _close(
        self, work: WindowWork, target: PublishTarget, published: Mapping[int, PublishedSplit]
    ) -> Outcome:
        """The receipt: one window at a time, behind the table's fence; with
        `atomic_window` all that the window has, in one transaction.
        """
        with turn(target, self._ids.table(work.receipt.window.pipeline)) as transaction:
            committed, _ = self._look(work)
            if committed is not None:
                return AlreadyDone(committed)
            if self.options.primary_key:
                self._control.read(lambda held: refuse_out_of_order(work, held))
            transaction.begin()
            if self.options.atomic_window:
                published = {
                    split.number: split
                    for split in self._sent(work, target, transaction, work.in_order)
                }
            receipt = work.whole(published)
            attempt, splits = (
                receipt.attempt if transaction.visible_at_once else None,
                tuple(published[n] for n in sorted(published)),
            )
            records = list(receipt_records(receipt.window.key, to_json(receipt), splits, attempt))
            put(target, transaction, records, parts_of(records))
            crash_point("commit.before")
            transaction.commit()
            crash_point("commit.after")
            return Done(Committed(receipt, None)) if attempt is None else self._won(work)

    def _won(self, work: WindowWork) -> Outcome:
        """Whose receipt came first, where another run may have written one, too."""
        committed, _ = self._look(work)
        if committed is None:
            raise UnansweredCommit
        return (
            Done(committed)
            if committed.receipt.attempt == work.receipt.attempt
            else AlreadyDone(committed)
        )

    def _look(
        self, work: WindowWork, *, to_end: bool = True
    ) -> tuple[Committed | None, Mapping[int, PublishedSplit]]:
        """The window as the table has it, or what is published of it.

        `to_end`: see `control.ControlTopic.read`.

        Raises:
            WindrowError: it may not be committed on what the table holds.
        """
        found = self._control.read(lambda held: judged(self.identity, work, held), to_end=to_end)
        if found is None:
            raise RefusedError(
                f"the control topic {self.options.control} isn't there any more",
                "commit",
                "Was it removed meanwhile? Restore it.",
            )
        return found
