"""Receipts as rows of a database, each with a digest that proves its text and its window's offsets.

What windrow keeps of a window lies in two tables there: the receipt, and the ranges of offsets by
which windows that overlap are found. Somebody may change or delete rows of either one by hand. A
window that has a row in one of them was committed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from windrow.ingest.errors import RefusedError
from windrow.ingest.model.plan import covered
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Unreadable
from windrow.ingest.sinks.table_store import StoredReceipt

_DO = (
    "windrow verify SPEC --restore-receipts puts it back from the ledger's copy; if there is none,"
    " restore {} from a backup."
)


class ReceiptRow(msgspec.Struct, frozen=True):
    """A window's newest receipt and its ranges, as the tables have them.

    `receipt`, `sha256`, `generation`: None where the row is missing. Rows that have no generation
    have 0.
    """

    window_key: str
    receipt: str | None
    sha256: bytes | None
    version: int | None
    ranges: Sequence[str]
    generation: int | None = 0

    def stored(self, backup: str) -> StoredReceipt | Unreadable:
        """The receipt, unless something else has changed it or the window's ranges.

        `backup`: what is restored from a backup if there is no copy of the receipt.
        """
        key, do = self.window_key, _DO.format(backup)
        if self.receipt is None or self.generation is None:
            return Unreadable(key, f"window {key} is committed, and its receipt is missing", do)
        if self.sha256 != digest(key, self.generation, self.ranges, self.receipt):
            return Unreadable(
                key,
                f"the receipt or the offsets of window {key} are not those that were committed",
                do,
            )
        return StoredReceipt(key, self.receipt, self.version)

    def refuse_other(self, receipt: Receipt, backup: str) -> None:
        """Refuses to take this receipt, which no digest proves, for the one that was committed.

        Where the row is missing, the ranges must be those of the receipt.

        Raises:
            RefusedError: it isn't the window's.
        """
        if self.receipt is not None or sorted(self.ranges) != sorted(range_texts(receipt)):
            raise RefusedError(
                f"the copy of the receipt of window {self.window_key} is not what was committed",
                "check",
                f"Nothing was restored. Restore {backup} from a backup.",
            )


def digest(key: str, generation: int, ranges: Sequence[str], text: str) -> bytes:
    """Computes the digest of a receipt's text, its window, its generation and its ranges."""
    whole = "\n".join([key, str(generation), *sorted(ranges), text])
    return hashlib.sha256(whole.encode()).digest()


def range_texts(receipt: Receipt) -> list[str]:
    """The window's ranges: the topic's id, the partition, start and stop."""
    return [f"{r.topic_id} {r.partition} {r.start} {r.stop}" for r in covered(receipt.plan)]
