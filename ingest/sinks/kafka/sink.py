"""The Kafka sink: rows become messages, exactly once for each split of a window; or,
with `atomic_window`, for each window.

Tasks stage the messages where no reader sees them, so that a window is refused before
anything of it is visible. The driver publishes (`ingest.sinks.kafka.commit`):

    look      at the control topic: is the window there, does it join on, does another one hold its
              offsets
    parts     some beside each other, those of one topic-partition in their order
    receipt   once readers see all messages

What is published can't be taken back. So a split that is there counts, whichever
attempt published it, if it has the same rows; one that has others refuses the window.
Nothing of a window is published twice, but readers see it split by split; that it is
whole the receipt says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import cached_property

import pyarrow as pa

from windrow.ingest.errors import LostConnectionError, SpecError, UnreachableError
from windrow.ingest.kafka.client import admin_properties, consumer_properties
from windrow.ingest.kafka.retry import PATIENCE_SECONDS
from windrow.ingest.kafka.wire import reachable
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner, refuse_other_owner
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import AlreadyDone, Audit, Capabilities, Done, Outcome, Unknown
from windrow.ingest.schema.load import function_now
from windrow.ingest.schema.metadata_fields import refuse_wrong
from windrow.ingest.sinks.kafka.commit import (
    FencedStore,
    KafkaState,
    Publication,
    end_open,
    in_parallel,
)
from windrow.ingest.sinks.kafka.control import (
    ControlTopic,
    Held,
    PublishedSplit,
    Record,
    owner_record,
    receipt_records,
)
from windrow.ingest.sinks.kafka.encoder import MessageEncoder, of_columns
from windrow.ingest.sinks.kafka.function import PartitionFunction
from windrow.ingest.sinks.kafka.ids import TransactionalIds
from windrow.ingest.sinks.kafka.options import Options, Reach, addresses
from windrow.ingest.sinks.kafka.parts import Part, chains
from windrow.ingest.sinks.kafka.publish import PublishTarget
from windrow.ingest.sinks.kafka.send import sending_library
from windrow.ingest.sinks.kafka.stage import KafkaStagerFactory, StagedFiles
from windrow.ingest.sinks.kafka.topics import SinkTopics
from windrow.ingest.sinks.kafka.unfinished import KafkaTransactions
from windrow.ingest.sinks.kafka.work import (
    WindowWork,
    judged,
    last_places,
    no_other_generation,
    refuse_out_of_order,
)
from windrow.ingest.sinks.settle import Found, settle, unknown_outcome
from windrow.ingest.sinks.staging import RowLayout
from windrow.ingest.sinks.sweep import cutoff_of
from windrow.ingest.sinks.table_store import ReceiptState, Unanswered, Written
from windrow.ingest.sinks.window_table import ReceiptTable
from windrow.ingest.sinks.write_check import refuse_unwritable


class KafkaSink(ReceiptTable):
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
        self.topics = SinkTopics(
            reach.servers, self._admin, options.topics, options.control, patience_seconds
        )
        self.control = ControlTopic(
            options.control, self.topics, self._admin, consumer, patience_seconds
        )
        self.files = StagedFiles(options.staging)
        self.ids = TransactionalIds(options.prefix, options.control, options.lanes)
        self.by_librdkafka = False

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a row, without the ones that windrow adds."""
        loaded = self._load() if callable(self._load) else self._load
        refuse_wrong(loaded.names, self.metadata)
        return loaded

    @cached_property
    def encoder(self) -> MessageEncoder:
        """What a row becomes.

        Raises:
            SpecError: a column that the spec names isn't there, or can't be written so.
        """
        options = self.options
        metadata = {column: column for name, column in self.metadata.items() if name != "window"}
        encoder = MessageEncoder(
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
        encoder.refuse_unfit(self._columns)
        return encoder

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
        sending_library()
        refuse_unwritable(self.options.staging, "sink.staging")
        self.topics.refuse_unfit(self.options.delivery, self.options.timeout)
        self.encoder.refuse_unregistrable(self._columns, self.reach.registry)

    def warnings(self) -> list[str]:
        return self.topics.changelog_warnings() if self.options.primary_key else []

    def places(self) -> Sequence[str]:
        return [self.options.staging]

    def reading(self) -> AbstractContextManager[ReceiptState | None]:
        held = self.control.read()
        return nullcontext(None if held is None or held.is_new else held)

    def prepare(self, owner: TableOwner) -> None:
        """Makes the control topic, never another one."""
        self._refuse_unfit()
        bound = self.owner()
        if bound is None:
            self.topics.refuse_unfit(self.options.delivery, self.options.timeout)
            self.topics.make_control()
            self._write(
                owner.pipeline,
                lambda held: [owner_record(owner)] if held.is_new else [],
            )
            bound = self.owner() or owner
        refuse_other_owner(self.identity, bound, owner)

    def _refuse_unfit(self) -> None:
        self.encoder  # noqa: B018
        if self.options.function is not None:
            function_now(self.options.function)

    def columns_to_come(self) -> Sequence[str]:
        """Messages have no table's columns."""
        self._refuse_unfit()
        return ()

    def wait_until_decided(self) -> None:
        """An open transaction of another run holds back what stands behind it in the
        control topic.
        """
        self.control.read(to_end=True)

    def stager(self, plan: Plan, generation: int, attempt: str) -> KafkaStagerFactory:
        del generation
        layout = RowLayout(self.options.staged(self.schema), self.metadata, attempt)
        encoder = self.encoder.registered(self._columns, self.reach.registry)
        return KafkaStagerFactory(
            self.options.staging, layout, encoder, plan.window.key, self._function()
        )

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """Publish a window, then write its receipt.

        Where a split was published by an earlier attempt, the receipt has the checksum of its rows.

        Raises:
            RefusedError: besides, a split was published with other rows, or the topic
                doesn't take a message.
        """
        work = WindowWork.of(receipt, staged)
        self.by_librdkafka = False
        unknown: Unknown | None = None
        try:
            outcome = self._publish(work)
            if not isinstance(outcome, Unknown) or not self._in_batches:
                return outcome
            unknown = outcome
        except LostConnectionError:
            raise
        except UnreachableError:
            if not self._in_batches:
                raise
        self.by_librdkafka = True  # it has more patience, and names what was not taken
        try:
            return self._publish(work)
        except UnreachableError:
            if unknown is None:
                raise
            return unknown

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
        return KafkaTransactions(self)

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """An attempt whose files are gone is refused before it publishes what was in them."""
        return self.files.sweep(cutoff_of(older_than), dry_run=dry_run)

    def bind_again(self, receipt: Receipt) -> None:
        """Put the owner back, which a receipt says too, where the control topic has
        lost it, or is gone itself.
        """
        self.topics.make_control()
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

    def _write(self, pipeline: str, lacks: Callable[[Held], Sequence[Record]]) -> None:
        """What the control topic lacks, by a look behind the table's fence."""
        store = self.behind(self.ids.table(pipeline), self.target())
        done = settle(
            store,
            lambda state: None if lacks(state.held) else True,
            lambda state: Publication(records=lacks(state.held)),
        )
        if isinstance(done, Unanswered):
            raise unknown_outcome(store, done.why)
        self.control.wait_until_seen(lambda held: not lacks(held))

    def behind(self, name: str, target: PublishTarget) -> FencedStore:
        """The table behind a transactional id."""
        return FencedStore(self, name, target)

    def target(self) -> PublishTarget:
        """Where messages go now, and how."""
        options = self.options
        return PublishTarget(
            self.topics.targets(),
            options.topics[0] if options.topic_column is None else None,
            options.control,
            self._admin,
            options.timeout // timedelta(milliseconds=1),
            options.partitioner,
            self.metadata,
            self.patience,
            options.delivery,
            options.acks,
            self._in_batches,
        )

    @property
    def _in_batches(self) -> bool:
        """Whether batches are encoded here: in transactions, where Kafka's own requests
        reach the cluster, and if that hasn't failed.
        """
        exactly_once = self.options.delivery == "exactly-once"
        return exactly_once and not self.by_librdkafka and reachable(self._admin)

    def _function(self) -> PartitionFunction | None:
        options = self.options
        if options.function is None:
            return None
        counts = {name: topic.partitions for name, topic in self.topics.targets().items()}
        return PartitionFunction(
            options.function, counts, options.topics[0] if options.topic_column is None else None
        )

    def _publish(self, work: WindowWork) -> Outcome:
        held, receipt = self.control.read(), work.receipt
        committed = judged(self.identity, work, held)
        if committed is not None:
            return AlreadyDone(committed)
        if receipt.generation:
            raise no_other_generation(receipt)
        assert held is not None  # or it was judged to be gone
        self.files.refuse_gone([f for n in work.left(work.files, held) for f in work.files[n]])
        target = self.target()
        if not held.whole and self.options.delivery == "exactly-once":
            # of runs that died: else one would be waited for that is fenced later
            end_open(target, self.ids.of_window(receipt.plan))
        if not self.options.atomic_window:
            unanswered = self._publish_parts(work, target)
            if unanswered is not None:
                return Unknown(unanswered.why)
            held = self.control.read(to_end=True)
            published = {} if held is None else held.splits.get(receipt.window.key, {})
            self.topics.wait_until_seen(last_places(published.values()))
        outcome = self._close(work, target)
        if isinstance(outcome, Done):
            self.control.wait_until_seen(lambda held: receipt.window.key in held.windows)
            self.files.remove([file for files in work.files.values() for file in files])
        return outcome

    def _publish_parts(self, work: WindowWork, target: PublishTarget) -> Unanswered | None:
        """Each part in a transaction of its own, those of a topic-partition in their order."""

        def published(chain: Sequence[Part]) -> Unanswered | None:
            for part in chain:
                done = self._publish_part(work, target, part)
                if isinstance(done, Unanswered):
                    return done
            return None

        todo = [
            [part for part in chain if any(n in work.files for n in part)]
            for chain in chains(work.receipt.plan)
        ]
        return next(filter(None, in_parallel(published, filter(None, todo))), None)

    def _publish_part(
        self, work: WindowWork, target: PublishTarget, part: Part
    ) -> Found[bool] | Written | Unanswered:
        def judge(state: KafkaState) -> bool | None:
            committed = judged(self.identity, work, state.held)
            return True if committed is not None or not work.left(part, state.held) else None

        return settle(
            self.behind(self.ids.part(work.receipt.window, part), target),
            judge,
            lambda state: Publication(work, work.left(part, state.held)),
        )

    def _close(self, work: WindowWork, target: PublishTarget) -> Outcome:
        """The receipt: one window at a time; with `atomic_window` all that the window has
        comes with it.
        """

        def judge(state: KafkaState) -> Committed | None:
            committed = judged(self.identity, work, state.held)
            if committed is None and self.options.primary_key:
                refuse_out_of_order(work, state.held)
            return committed

        def change(state: KafkaState) -> Publication:
            # What a run without atomic_window has published stays, and isn't sent again.
            left = work.left(work.in_order, state.held) if self.options.atomic_window else ()
            return Publication(work, left, closes=True)

        table = self.ids.table(work.receipt.window.pipeline)
        done = settle(self.behind(table, target), judge, change)
        if isinstance(done, Unanswered):
            return Unknown(done.why)
        if isinstance(done, Written):
            return Done(Committed(done.receipt or work.receipt, None))
        ours = done.sent and done.value.receipt.attempt == work.receipt.attempt
        return Done(done.value) if ours else AlreadyDone(done.value)
