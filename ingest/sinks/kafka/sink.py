"""The Kafka sink: rows become messages, exactly once per split or per window.

Each split of a window is published exactly once. With `atomic_window` the whole window is
published in one transaction.

Tasks stage the messages in files that no reader sees, so a window can be refused before any
of it is visible. The driver publishes it (`ingest.sinks.kafka.store`):

    look      at the control topic: is the window committed, does it follow the others, does
              another window cover its offsets
    parts     in transactions, some at the same time, those of one topic-partition in their order
    receipt   once readers see all messages

Published messages can't be deleted. So a published split counts, whichever attempt
published it, if it has the same rows. A split that was published with other rows refuses
the window. No message of a window is published twice, but readers see the window split by
split; the receipt shows that it is complete.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import timedelta

from windrow.ingest.errors import RefusedError
from windrow.ingest.kafka.timeouts import confirm
from windrow.ingest.model.owner import TableOwner, refuse_other_owner
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Receipt, Staged
from windrow.ingest.ports.sink import (
    AlreadyDone,
    Audit,
    Done,
    Maintained,
    Maintenance,
    Outcome,
    ProgressFolder,
    Unknown,
)
from windrow.ingest.schema.user_code import load_function
from windrow.ingest.sinks.kafka.audit import KafkaAudit
from windrow.ingest.sinks.kafka.control_records import (
    ControlState,
    owner_record,
)
from windrow.ingest.sinks.kafka.partitioners import PartitionFunction
from windrow.ingest.sinks.kafka.send import PublishTarget, sending_library
from windrow.ingest.sinks.kafka.stage import KafkaStagerFactory
from windrow.ingest.sinks.kafka.store import (
    FencedStore,
    KafkaState,
    TransactionContents,
    abort_open,
    in_parallel,
    write_records,
)
from windrow.ingest.sinks.kafka.table import KafkaTable
from windrow.ingest.sinks.kafka.topics import DO_MADE_ANEW
from windrow.ingest.sinks.kafka.transactions import Part, chains
from windrow.ingest.sinks.kafka.work import (
    WindowWork,
    check_window,
    last_offsets_of,
    no_other_generation,
    refuse_out_of_order,
)
from windrow.ingest.sinks.kit import (
    RowLayout,
    Unanswered,
    refuse_unwritable,
    run_commit_loop,
)


class KafkaSink(KafkaTable):
    """`ports.sink.Sink` on topics of a cluster."""

    def refuse_unwritable(self) -> None:
        sending_library()
        refuse_unwritable(self.options.staging, "sink.staging")
        self.topics.check(self.options.delivery, self.options.timeout)
        self.encoder.refuse_unregistrable(self.columns, self.connection.registry)

    def warnings(self) -> Sequence[str]:
        return self.topics.changelog_warnings() if self.options.primary_key else ()

    def places(self) -> Sequence[str]:
        return [self.options.staging]

    def cluster_id(self) -> str:
        return self.topics.cluster_id()

    def written_topics(self) -> Sequence[str]:
        return [*self.options.topics, self.options.control]

    def retention(self) -> tuple[str, timedelta] | None:
        return self.topics.retention() if self.options.time == "message" else None

    def prepare(self, owner: TableOwner, replaced: Collection[str] = ()) -> None:
        """Makes the control topic if it is missing. Target topics are never made."""
        del replaced  # a topic replaces no window
        self._check_options()
        bound = self.owner()
        self.topics.check(self.options.delivery, self.options.timeout)
        if bound is None:
            self.topics.make_control()
            write_records(
                self,
                owner.pipeline,
                lambda control: [owner_record(owner)] if control.is_new else [],
            )
            bound = self.owner() or owner
        refuse_other_owner(self.identity, bound, owner)

    def _check_options(self) -> None:
        self.encoder  # noqa: B018  # its property checks the options
        if self.options.function is not None:
            load_function(self.options.function)

    def columns_to_come(self) -> Sequence[str]:
        """Checks the options; a topic has no columns that could be added."""
        self._check_options()
        return ()

    def wait_until_decided(self) -> None:
        """Waits until no open transaction hides records of the control topic."""
        self.control.read(to_end=True)

    def stager(self, plan: Plan, generation: int, attempt: str) -> KafkaStagerFactory:
        del generation
        layout = RowLayout(self.options.staged(self.schema), self.metadata, attempt)
        encoder = self.encoder.registered(self.columns, self.connection.registry)
        return KafkaStagerFactory(layout, encoder, plan.window, self._function())

    def progress_folder(self) -> ProgressFolder:
        return self.files.progress_folder()

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """Publishes a window, then writes its receipt.

        A split that an earlier attempt published keeps the checksum of that attempt.

        Raises:
            RefusedError: also if a split was published with other rows, or a topic's
                settings refuse a message.
        """
        work = WindowWork.from_staged(receipt, staged)
        outcome = self._commit_window(work)
        if isinstance(outcome, Done):
            self.files.remove_consumed(word for s in staged for word in s.rows)
        return outcome

    def audit(self) -> Audit:
        return KafkaAudit(self)

    def maintain(self, settings: Maintenance, *, dry_run: bool = False) -> Maintained:
        """Removes old staged files.

        An attempt whose files are gone is refused before it publishes any of their messages.
        """
        removed = self.files.sweep(settings.keep_files, dry_run=dry_run)
        return Maintained(removed_files=tuple(removed))

    def fenced_store(self, name: str, target: PublishTarget) -> FencedStore:
        """Opens the table for the commit loop, under a transactional id."""
        return FencedStore(self, name, target)

    def _function(self) -> PartitionFunction | None:
        options = self.options
        if options.function is None:
            return None
        counts = {name: topic.partitions for name, topic in self.topics.targets().items()}
        return PartitionFunction(options.function, counts, options.only_topic)

    def _commit_window(self, work: WindowWork) -> Outcome:
        control, receipt = self._read_control(), work.receipt
        committed = check_window(self.identity, work, control)
        if committed is not None:
            return AlreadyDone(committed)
        if receipt.generation:
            raise no_other_generation(receipt)
        assert control is not None  # otherwise `check_window` has raised
        self.files.refuse_gone(
            [f for n in work.unpublished(work.files, control) for f in work.files[n]]
        )
        target = self.target()
        # Checked before any other part is published, and again before the receipt.
        self._refuse_gone(receipt.window.key, control)
        if not control.is_complete and self.options.delivery == "exactly-once":
            # A transaction that a dead run left open hides the end of the control topic, which
            # the next steps read. Such transactions are aborted. A transaction of a live run is
            # aborted too; that run tries again.
            abort_open(target, self.ids.of_window(receipt.plan))
        if not self.options.atomic_window:
            unanswered = self._publish_parts(work, target)
            if unanswered is not None:
                return Unknown(unanswered.reason)
            control = self.control.read(to_end=True)
            published = {} if control is None else control.splits.get(receipt.window.key, {})
            self.topics.wait_until_seen(last_offsets_of(published.values()))
        outcome = self._commit_receipt(work, target)
        if isinstance(outcome, Done):
            self.control.wait_until_seen(lambda control: receipt.window.key in control.windows)
        return outcome

    def _read_control(self) -> ControlState | None:
        """Reads the control topic of a prepared table; returns None if it is surely gone.

        A broker that has just started may not know the topic yet.
        """

        def find_missing(names: Sequence[str]) -> list[str]:
            return [name for name in names if self.control.read() is None]

        control = self.control.read()
        if control is None and not confirm([self.control.name], find_missing, time.sleep):
            return self.control.read()
        return control

    def _refuse_gone(self, key: str, control: ControlState) -> None:
        """Checks that the topics still have the published messages of a window.

        Raises:
            RefusedError: messages are gone, and the receipt would count rows that no topic has.
        """
        published = control.splits.get(key, {}).values()
        for reason in self.topics.find_deleted(
            {s for split in published for s in split.places}
        ).values():
            raise RefusedError(
                f"window {key} is published in part, and what was published is gone: {reason}",
                "commit",
                DO_MADE_ANEW,
            )

    def _publish_parts(self, work: WindowWork, target: PublishTarget) -> Unanswered | None:
        """Publishes each part in its own transaction, the parts of a chain in order."""

        def published(chain: Sequence[Part]) -> Unanswered | None:
            for part in chain:
                unanswered = self._publish_part(work, target, part)
                if unanswered is not None:
                    return unanswered
            return None

        todo = [
            [part for part in chain if any(n in work.files for n in part)]
            for chain in chains(work.receipt.plan)
        ]
        return next(filter(None, in_parallel(published, filter(None, todo))), None)

    def _publish_part(
        self, work: WindowWork, target: PublishTarget, part: Part
    ) -> Unanswered | None:
        def check(state: KafkaState) -> bool | None:
            committed = check_window(self.identity, work, state.control)
            return (
                True if committed is not None or not work.unpublished(part, state.control) else None
            )

        done = run_commit_loop(
            self.fenced_store(self.ids.part(work.receipt.window, part), target),
            check,
            lambda state: TransactionContents(work, work.unpublished(part, state.control)),
        )
        return done if isinstance(done, Unanswered) else None

    def _commit_receipt(self, work: WindowWork, target: PublishTarget) -> Outcome:
        """Writes the receipt; with `atomic_window` its transaction also has all messages."""

        def check(state: KafkaState) -> Committed | None:
            committed = check_window(self.identity, work, state.control)
            if committed is None:
                self._refuse_gone(work.receipt.window.key, state.control)
                if self.options.primary_key:
                    refuse_out_of_order(work, state.control)
            return committed

        def change(state: KafkaState) -> TransactionContents:
            # Splits that a run without atomic_window has published aren't sent again.
            unpublished = (
                work.unpublished(work.in_order, state.control) if self.options.atomic_window else ()
            )
            return TransactionContents(work, unpublished, receipt=True)

        table = self.ids.table(work.receipt.window.pipeline)
        done = run_commit_loop(self.fenced_store(table, target), check, change)
        return done.outcome_for(work.receipt)
