"""The part of a ledger's contract that concerns its table.

A pipeline has one table, and the ledger's copies of receipts agree with it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contracts.ledger_contract import PIPELINE, plan, receipt, window
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.codec import to_json
from windrow.ingest.ports.ledger import Ledger


class LedgerTableContract:
    """The promises about the table.

    A subclass supplies the fixture `reopen`: a function that opens the same ledger again. The
    ledger is empty at first.
    """

    def test_the_newest_generations_receipt_is_kept(self, reopen: Callable[[], Ledger]) -> None:
        """The receipt of the newest generation is kept.

        A receipt may be recorded twice. An older generation that comes late changes nothing,
        unless `also_older` says that the table holds it.
        """
        ledger = reopen()
        for copy in (receipt(1), receipt(1), receipt(1, 2), receipt(1, 1)):
            ledger.record(copy)
        assert ledger.recorded_receipts(PIPELINE) == [receipt(1, 2)]
        ledger.record(receipt(1, 1), also_older=True)
        assert reopen().recorded_receipts(PIPELINE) == [receipt(1, 1)]

    def test_of_one_generation_the_sinks_last_word_is_kept(
        self, reopen: Callable[[], Ledger]
    ) -> None:
        """Of one generation, the receipt that was recorded last is kept.

        For example, the table was lost, and the window was run again by another attempt.
        """
        ledger = reopen()
        for copy in (receipt(1), receipt(1, attempt="again")):
            ledger.record(copy)
        assert reopen().recorded_receipts(PIPELINE) == [receipt(1, attempt="again")]

    def test_a_copy_keeps_its_text(self, reopen: Callable[[], Ledger]) -> None:
        """A receipt's text comes back byte by byte, even if this version would write it
        differently.
        """
        ledger, text = reopen(), to_json(receipt(1)).replace('{"', '{ "')
        assert ledger.recorded_text(window(1)) is None
        ledger.record(receipt(1), text)
        assert reopen().recorded_text(window(1)) == text
        assert reopen().recorded_receipts(PIPELINE) == [receipt(1)]
        ledger.record(receipt(2))
        assert ledger.recorded_text(window(2)) == to_json(receipt(2))

    def test_the_first_table_stays(self, reopen: Callable[[], Ledger]) -> None:
        """A pipeline's first recorded table stays, and every later caller gets it."""
        ledger = reopen()
        assert ledger.sink(PIPELINE) is None
        assert ledger.bind_sink(PIPELINE, "delta:/a") == "delta:/a"
        assert reopen().bind_sink(PIPELINE, "delta:/b") == "delta:/a"
        assert reopen().sink(PIPELINE) == "delta:/a"
        assert ledger.bind_sink("other", "delta:/b") == "delta:/b"

    def test_tables_bound_at_once_are_one(self, reopen: Callable[[], Ledger]) -> None:
        """If eight runs bind different tables at the same time, all get the same table."""
        with ThreadPoolExecutor(8) as pool:
            bound_sinks = set(
                pool.map(lambda n: reopen().bind_sink(PIPELINE, f"delta:/{n}"), range(8))
            )
        assert bound_sinks == {reopen().sink(PIPELINE)}

    def test_another_table_is_compared_and_set(self, reopen: Callable[[], Ledger]) -> None:
        """A table is replaced only by a caller that names it.

        The receipts of the windows that the new table lacks are removed, and nothing else.
        """
        ledger = reopen()
        ledger.bind_sink(PIPELINE, "delta:/a")
        for hour in (1, 2):
            ledger.freeze_plans([plan(hour, 5)])
            ledger.record(receipt(hour))
        with pytest.raises(RefusedError, match="windrow rebind SPEC"):
            reopen().rebind(PIPELINE, "delta:/c", "delta:/b", [window(1)])
        assert (len(ledger.recorded_receipts(PIPELINE)), ledger.sink(PIPELINE)) == (2, "delta:/a")
        for _ in range(2):
            reopen().rebind(PIPELINE, "delta:/b", "delta:/a", [window(1)])
            assert (ledger.recorded_receipts(PIPELINE), ledger.sink(PIPELINE)) == (
                [receipt(2)],
                "delta:/b",
            )
        assert ledger.plan(window(1)) == plan(1, 5)
