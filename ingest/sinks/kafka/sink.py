"""The Kafka sink: rows become messages, exactly once per split or per window.

A window is exactly once as a whole only with `atomic_window`; without it, each of its
splits is.

Tasks stage the messages where no reader sees them, so that a window is refused before
anything of it is visible. The driver publishes it (`ingest.sinks.kafka.commit`):

    look      at the control topic: is the window committed, does it follow the others, does
              another window cover its offsets
    parts     in transactions, some at the same time, those of one topic-partition in their order
    receipt   once readers see all messages

Published messages can't be deleted. So a published split counts, whichever attempt
published it, if it has the same rows; a split that was published with other rows refuses
the window. Nothing of a window is published twice, but readers see it split by split;
the receipt says that it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import cached_property

import pyarrow as pa

from windrow.ingest.errors import OutcomeUnknownError, RefusedError, SpecError
from windrow.ingest.kafka.client import admin_properties, consumer_properties
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner, refuse_other_owner
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import AlreadyDone, Audit, Capabilities, Done, Outcome, Unknown
from windrow.ingest.schema.load import function_now
from windrow.ingest.schema.metadata_fields import refuse_wrong
from windrow.ingest.sinks.commit_loop import Found, outcome_for, run_commit_loop
from windrow.ingest.sinks.kafka.commit import (
    FencedStore,
    KafkaState,
    TransactionContents,
    abort_open,
    in_parallel,
)
from windrow.ingest.sinks.kafka.control import ControlTopic
from windrow.ingest.sinks.kafka.encoder import MessageEncoder, with_columns
from windrow.ingest.sinks.kafka.function import PartitionFunction
from windrow.ingest.sinks.kafka.ids import TransactionalIds
from windrow.ingest.sinks.kafka.options import ClusterConnection, Options, addresses
from windrow.ingest.sinks.kafka.parts import Part, chains
from windrow.ingest.sinks.kafka.publish import PublishTarget
from windrow.ingest.sinks.kafka.records import (
    ControlState,
    PublishedSplit,
    Record,
    owner_record,
    receipt_records,
)
from windrow.ingest.sinks.kafka.send import sending_library
from windrow.ingest.sinks.kafka.stage import KafkaStagerFactory, StagedMessageFiles
from windrow.ingest.sinks.kafka.topics import DO_MADE_ANEW, SinkTopics
from windrow.ingest.sinks.kafka.work import (
    WindowWork,
    check_window,
    last_places,
    no_other_generation,
    refuse_out_of_order,
)
from windrow.ingest.sinks.stage import RowLayout
from windrow.ingest.sinks.sweep import cutoff_of
from windrow.ingest.sinks.table_store import ReceiptState, Unanswered, Written
from windrow.ingest.sinks.window_table import ReceiptTable
from windrow.ingest.sinks.write_check import refuse_unwritable


class KafkaSink(ReceiptTable):
    """`ports.sink.Sink` on topics of a cluster.

    Args:
        connection: the connection to the cluster.
        options: the table's options.
        schema: the columns of a row, without the metadata's; or a function that loads
            them, called when they are needed first.
        metadata: the names of the metadata's columns, which are headers of the messages.

    Raises:
        SpecError: the client properties can't be used, or a metadata column's or a
            header's name is taken.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        options: Options,
        schema: pa.Schema | Callable[[], pa.Schema],
        metadata: Mapping[str, str] = DEFAULT,
    ) -> None:
        refuse_wrong(schema.names if isinstance(schema, pa.Schema) else (), metadata)
        _refuse_two_headers(options.headers, metadata)
        self.connection, self.options, self.metadata = connection, options, dict(metadata)
        self.capabilities = Capabilities(
            "window" if options.atomic_window else "split",
            replaces=False,
            mode="changes" if options.primary_key else "append",
            delivery=options.delivery,
        )
        self._load = schema
        self._admin = admin_properties(connection.servers, connection.client)
        consumer = consumer_properties(connection.servers, connection.client)
        self.topics = SinkTopics(connection.servers, self._admin, options.topics, options.control)
        self.control = ControlTopic(options.control, self.topics, self._admin, consumer)
        self.files = StagedMessageFiles(options.staging)
        self.ids = TransactionalIds(options.prefix, options.control, options.lanes)

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a row, without the metadata's."""
        loaded = self._load() if callable(self._load) else self._load
        refuse_wrong(loaded.names, self.metadata)
        return loaded

    @cached_property
    def encoder(self) -> MessageEncoder:
        """The encoder of rows.

        Raises:
            SpecError: rows don't have a column that the spec names, or it can't be
                written in its format.
        """
        options = self.options
        metadata = {column: column for name, column in self.metadata.items() if name != "window"}
        encoder = MessageEncoder(
            with_columns(options.value, self.schema.names),
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
        """Columns of a row, with the metadata's."""
        return RowLayout(self.schema, self.metadata, "").schema

    @property
    def identity(self) -> str:
        """The cluster and the control topic: tables differ in one of them."""
        return (
            f"kafka:{','.join(sorted(addresses(self.connection.servers)))}/{self.options.control}"
        )

    def is_at(self, identity: str) -> bool:
        """Returns whether it names this table; one address in common means the same cluster."""
        servers, _, control = identity.removeprefix("kafka:").partition("/")
        return control == self.options.control and not addresses(servers).isdisjoint(
            addresses(self.connection.servers)
        )

    def refuse_unwritable(self) -> None:
        sending_library()
        refuse_unwritable(self.options.staging, "sink.staging")
        self.topics.refuse_unfit(self.options.delivery, self.options.timeout)
        self.encoder.refuse_unregistrable(self._columns, self.connection.registry)

    def warnings(self) -> Sequence[str]:
        return self.topics.changelog_warnings() if self.options.primary_key else ()

    def places(self) -> Sequence[str]:
        return [self.options.staging]

    def reading(self) -> AbstractContextManager[ReceiptState | None]:
        control = self.control.read()
        return nullcontext(None if control is None or control.is_new else control)

    def prepare(self, owner: TableOwner) -> None:
        """Makes the control topic if it is missing, but no target topic."""
        self._refuse_unfit()
        bound = self.owner()
        if bound is None:
            self.topics.refuse_unfit(self.options.delivery, self.options.timeout)
            self.topics.make_control()
            self._write(
                owner.pipeline,
                lambda control: [owner_record(owner)] if control.is_new else [],
            )
            bound = self.owner() or owner
        refuse_other_owner(self.identity, bound, owner)

    def _refuse_unfit(self) -> None:
        self.encoder  # noqa: B018  # its checks
        if self.options.function is not None:
            function_now(self.options.function)

    def columns_to_come(self) -> Sequence[str]:
        """Checks the options; a topic has no columns that could be added."""
        self._refuse_unfit()
        return ()

    def wait_until_decided(self) -> None:
        """Waits until no open transaction hides records of the control topic."""
        self.control.read(to_end=True)

    def stager(self, plan: Plan, generation: int, attempt: str) -> KafkaStagerFactory:
        del generation
        layout = RowLayout(self.options.staged(self.schema), self.metadata, attempt)
        encoder = self.encoder.registered(self._columns, self.connection.registry)
        return KafkaStagerFactory(
            self.options.staging, layout, encoder, plan.window.key, self._function()
        )

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """Publishes a window, then writes its receipt.

        A split that an earlier attempt published keeps the checksum of that attempt.

        Raises:
            RefusedError: besides, a split was published with other rows, or a topic's
                settings refuse a message.
        """
        work = WindowWork.of(receipt, staged)
        outcome = self._commit_window(work)
        if isinstance(outcome, Done):
            self.files.remove([file for files in work.files.values() for file in files])
        return outcome

    def audit(self) -> Audit:
        from windrow.ingest.sinks.kafka.audit import KafkaAudit

        return KafkaAudit(self)

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """Removes old staged files.

        An attempt whose files are gone is refused before it publishes anything of them.
        """
        return self.files.sweep(cutoff_of(older_than), dry_run=dry_run)

    def bind_again(self, receipt: Receipt) -> None:
        """Restores the control topic, and the record of its owner, from a receipt."""
        self.topics.make_control()
        owner = TableOwner(receipt.window.pipeline, receipt.ledger, receipt.grid)

        def lost(control: ControlState) -> list[Record]:
            return [] if control.is_bound else [owner_record(owner, control.start)]

        self._write(owner.pipeline, lost)

    def put_back(self, receipt: Receipt, text: str, splits: tuple[PublishedSplit, ...]) -> None:
        """Restores a receipt that is missing from the control topic.

        Args:
            receipt: the receipt.
            text: its exact text.
            splits: the records of the window's published splits.
        """
        key = receipt.window.key
        attempt = None if self.options.delivery == "exactly-once" else receipt.attempt

        def lost(control: ControlState) -> list[Record]:
            if key in control.windows.keys() - control.damaged.keys():
                return []
            return [*receipt_records(key, text, splits, attempt)]

        self._write(receipt.window.pipeline, lost)

    def _write(self, pipeline: str, lacks: Callable[[ControlState], Sequence[Record]]) -> None:
        """Writes the records that the control topic lacks, under the table's transactional id."""
        store = self.fenced_store(self.ids.table(pipeline), self.target())
        done = run_commit_loop(
            store,
            lambda state: None if lacks(state.control) else True,
            lambda state: TransactionContents(records=lacks(state.control)),
        )
        if isinstance(done, Unanswered):
            raise OutcomeUnknownError.of(f"to {store.place}", done.why, "Try again")
        self.control.wait_until_seen(lambda control: not lacks(control))

    def fenced_store(self, name: str, target: PublishTarget) -> FencedStore:
        """Returns the table as the commit loop opens it under a transactional id."""
        return FencedStore(self, name, target)

    def target(self) -> PublishTarget:
        """Asks the cluster for the target topics, and returns how messages are sent now."""
        options = self.options
        return PublishTarget(
            self.topics.targets(),
            options.topics[0] if options.topic_column is None else None,
            options.control,
            self._admin,
            options.timeout // timedelta(milliseconds=1),
            options.partitioner,
            self.metadata,
            options.delivery,
            options.acks,
        )

    def _function(self) -> PartitionFunction | None:
        options = self.options
        if options.function is None:
            return None
        counts = {name: topic.partitions for name, topic in self.topics.targets().items()}
        return PartitionFunction(
            options.function, counts, options.topics[0] if options.topic_column is None else None
        )

    def _commit_window(self, work: WindowWork) -> Outcome:
        control, receipt = self.control.read(), work.receipt
        committed = check_window(self.identity, work, control)
        if committed is not None:
            return AlreadyDone(committed)
        if receipt.generation:
            raise no_other_generation(receipt)
        assert control is not None  # else `check_window` has raised
        self.files.refuse_gone(
            [f for n in work.unpublished(work.files, control) for f in work.files[n]]
        )
        target = self.target()
        self._refuse_gone(receipt.window.key, control)
        if not control.is_complete and self.options.delivery == "exactly-once":
            # A transaction that a dead run left open hides the end of the control topic, which
            # is waited for below. One of a run that lives is ended too: that run tries again.
            abort_open(target, self.ids.of_window(receipt.plan))
        if not self.options.atomic_window:
            unanswered = self._publish_parts(work, target)
            if unanswered is not None:
                return Unknown(unanswered.why)
            control = self.control.read(to_end=True)
            published = {} if control is None else control.splits.get(receipt.window.key, {})
            self.topics.wait_until_seen(last_places(published.values()))
        outcome = self._commit_receipt(work, target)
        if isinstance(outcome, Done):
            self.control.wait_until_seen(lambda control: receipt.window.key in control.windows)
        return outcome

    def _refuse_gone(self, key: str, control: ControlState) -> None:
        """Checks that the topics still have what an earlier attempt published of a window.

        Raises:
            RefusedError: they don't, and the receipt would count rows that no topic has.
        """
        published = control.splits.get(key, {}).values()
        spans = [span for split in published for span in split.places]
        gone = self.topics.gone(spans, self.topics.readable()) if spans else {}
        for why in gone.values():
            what = f"window {key} is published in part, and what was published is gone: {why}"
            raise RefusedError(what, "commit", DO_MADE_ANEW)

    def _publish_parts(self, work: WindowWork, target: PublishTarget) -> Unanswered | None:
        """Publishes each part in a transaction of its own, the parts of a chain in order."""

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
        def check(state: KafkaState) -> bool | None:
            committed = check_window(self.identity, work, state.control)
            return (
                True if committed is not None or not work.unpublished(part, state.control) else None
            )

        return run_commit_loop(
            self.fenced_store(self.ids.part(work.receipt.window, part), target),
            check,
            lambda state: TransactionContents(work, work.unpublished(part, state.control)),
        )

    def _commit_receipt(self, work: WindowWork, target: PublishTarget) -> Outcome:
        """Writes the receipt; with `atomic_window` all messages are in its transaction."""

        def check(state: KafkaState) -> Committed | None:
            committed = check_window(self.identity, work, state.control)
            if committed is None and self.options.primary_key:
                refuse_out_of_order(work, state.control)
            return committed

        def change(state: KafkaState) -> TransactionContents:
            # Splits that a run without atomic_window has published aren't sent again.
            left = (
                work.unpublished(work.in_order, state.control) if self.options.atomic_window else ()
            )
            return TransactionContents(work, left, receipt=True)

        table = self.ids.table(work.receipt.window.pipeline)
        return outcome_for(
            work.receipt, run_commit_loop(self.fenced_store(table, target), check, change)
        )


def _refuse_two_headers(headers: Mapping[str, str], metadata: Mapping[str, str]) -> None:
    """Checks that no message gets two headers of one name.

    Raises:
        SpecError: a header has the name of a metadata column, which is a header, too.
    """
    for name, column in metadata.items():
        if column in headers:
            raise SpecError(
                f"sink.headers has a header {column}, and each message has one of that name"
                f" already, for metadata.{name}",
                "spec",
                f"Rename the header, or set another name under metadata.{name}.",
            )
