"""The messages of some splits, sent in an open transaction: in whole batches, without a Python object for each, or one by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import BoundedSemaphore

from ingest.kafka.capi import Api
from ingest.kafka.transaction import Sender
from ingest.kafka.wire_transaction import WireTransaction
from ingest.sinks.kafka.batch_pump import BatchPump
from ingest.sinks.kafka.control import PublishedSplit
from ingest.sinks.kafka.fast import CompiledPump, Ends
from ingest.sinks.kafka.publish import PublishTarget, Pump
from ingest.sinks.kafka.stage import StagedFiles
from ingest.sinks.kafka.work import WindowWork

_sending = BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))
"""Who sends keeps two processors busy, its own thread one and its client's thread another. More at once would only be in each other's way;
transactions that begin or end meanwhile aren't."""

_encoding = BoundedSemaphore(os.cpu_count() or 1)
"""Who sends batches that it has encoded itself keeps one busy."""


def sent_in_batches(
    files: StagedFiles, work: WindowWork, target: PublishTarget, transaction: WireTransaction, numbers: Sequence[int]
) -> list[PublishedSplit]:
    """Batches are encoded here. Nothing is tried twice.

    Raises:
        TransactionError: the transaction can't go on; why may be told by sending them one by one.
        RefusedError: a staged file is gone.
    """
    published = []
    with _encoding:
        for number in numbers:
            pump = BatchPump(target, transaction, work.receipt.window.key, number, work.receipt.plan.splits[number])
            for file in work.files[number]:
                pump.send(files.batches(file))
            published.append(work.published(number, pump.wait()))
    return published


def sent(
    api: Api, ends: Callable[[], Ends], files: StagedFiles, work: WindowWork, target: PublishTarget, transaction: Sender,
    numbers: Sequence[int],
) -> list[PublishedSplit]:  # fmt: skip
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
    files: StagedFiles, work: WindowWork, target: PublishTarget, transaction: Sender, numbers: Sequence[int]
) -> list[PublishedSplit]:
    """Each message is reported, so one that isn't taken is named.

    Raises:
        RefusedError: a topic doesn't take a message, or a staged file is gone.
        TransactionError: the transaction can't go on.
    """
    pumps = {n: Pump(target, transaction, work.receipt.window.key, n, work.receipt.plan.splits[n]) for n in numbers}
    for number, pump in pumps.items():
        for file in work.files[number]:
            pump.send(files.batches(file))
    return [work.published(number, pump.wait()) for number, pump in pumps.items()]
