"""The messages of some splits, sent in an open transaction: in whole batches, without a
Python object for each, or one by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import BoundedSemaphore

from windrow.ingest.kafka.capi import Api
from windrow.ingest.kafka.transaction import Sender, Sending
from windrow.ingest.kafka.wire_transaction import WireTransaction
from windrow.ingest.sinks.kafka.batch_pump import BatchPump
from windrow.ingest.sinks.kafka.control import PublishedSplit
from windrow.ingest.sinks.kafka.fast import CompiledPump, Ends, usable
from windrow.ingest.sinks.kafka.publish import PublishTarget, Pump
from windrow.ingest.sinks.kafka.stage import StagedFiles
from windrow.ingest.sinks.kafka.work import WindowWork

_sending = BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))
"""Who sends keeps two processors busy, its own thread one and its client's thread another.

More at once would only be in each other's way; transactions that begin or end meanwhile aren't.
"""

_encoding = BoundedSemaphore(os.cpu_count() or 1)
"""Who sends batches that it has encoded itself keeps one busy."""


def sent(
    ends: Callable[[], Ends],
    files: StagedFiles,
    work: WindowWork,
    target: PublishTarget,
    transaction: Sending,
    numbers: Sequence[int],
    *,
    one_by_one: bool,
) -> list[PublishedSplit]:
    """In whole batches where the transaction takes such; by librdkafka, without an
    object for each, or if that can't be, one by one.

    Args:
        ends: asks for the ends of all target logs.
        files: of the splits.
        work: the window.
        target: where messages go.
        transaction: which they are in.
        numbers: of the splits.
        one_by_one: whether each message is to be reported, so that one that isn't taken is named.

    Raises:
        TransactionError: the transaction can't go on; why may be told by sending them one by one.
        RefusedError: a staged file is gone, or a topic doesn't take a message.
    """
    if isinstance(transaction, WireTransaction):
        return _sent_in_batches(files, work, target, transaction, numbers)
    assert isinstance(transaction, Sender)  # there is no third
    api = None if one_by_one else usable()
    if api is None:
        return sent_one_by_one(files, work, target, transaction, numbers)
    return _sent_compiled(api, ends, files, work, target, transaction, numbers)


def _sent_in_batches(
    files: StagedFiles,
    work: WindowWork,
    target: PublishTarget,
    transaction: WireTransaction,
    numbers: Sequence[int],
) -> list[PublishedSplit]:
    """Batches are encoded here. Nothing is tried twice.

    Raises:
        TransactionError: the transaction can't go on; why may be told by sending them one by one.
        RefusedError: a staged file is gone.
    """
    published = []
    with _encoding:
        for number in numbers:
            pump = BatchPump(
                target,
                transaction,
                work.receipt.window.key,
                number,
                work.receipt.plan.splits[number],
            )
            for file in work.files[number]:
                pump.send(files.batches(file))
            published.append(work.published(number, pump.wait()))
    return published


def _sent_compiled(
    api: Api,
    ends: Callable[[], Ends],
    files: StagedFiles,
    work: WindowWork,
    target: PublishTarget,
    transaction: Sender,
    numbers: Sequence[int],
) -> list[PublishedSplit]:
    """The splits share the places between which their messages are: headers say which is whose.

    Raises:
        TransactionError: the transaction can't go on; why may be told by sending them one by one.
        RefusedError: a staged file is gone.
    """
    with _sending:
        pump = CompiledPump(api, ends, target, transaction, work.receipt.window.key)
        for number in numbers:
            for file in work.files[number]:
                pump.send(number, work.receipt.plan.splits[number], files.batches(file))
        spans = pump.wait()
    return [work.published(number, spans) for number in numbers]


def sent_one_by_one(
    files: StagedFiles,
    work: WindowWork,
    target: PublishTarget,
    transaction: Sender,
    numbers: Sequence[int],
) -> list[PublishedSplit]:
    """Each message is reported, so one that isn't taken is named.

    Raises:
        RefusedError: a topic doesn't take a message, or a staged file is gone.
        TransactionError: the transaction can't go on.
    """
    pumps = {
        n: Pump(target, transaction, work.receipt.window.key, n, work.receipt.plan.splits[n])
        for n in numbers
    }
    for number, pump in pumps.items():
        for file in work.files[number]:
            pump.send(files.batches(file))
    return [work.published(number, pump.wait()) for number, pump in pumps.items()]
