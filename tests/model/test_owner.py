"""The comparison of a table's owner with a pipeline, which all sinks share."""

from __future__ import annotations

import pytest

from windrow.ingest.errors import GridError, OwnerError, RefusedError
from windrow.ingest.model.owner import TableOwner, refuse_other_owner

BOUND = TableOwner("orders", "ledger-1", "hourly")


def test_the_same_binding_passes() -> None:
    """The owner of a table may use it."""
    refuse_other_owner("t", BOUND, TableOwner("orders", "ledger-1", "hourly"))


@pytest.mark.parametrize(
    ("expected", "error", "message", "advice"),
    [
        (
            TableOwner("returns", "ledger-2", "daily"),
            OwnerError,
            "the table t belongs to pipeline 'orders', not 'returns'",
            "Was the id changed? Set it back to orders. Else use another path",
        ),
        (
            TableOwner("orders", "ledger-2", "daily"),
            GridError,
            "the table t was begun with hourly windows, not daily",
            "Set the grid back",
        ),
        (
            TableOwner("orders", "ledger-2", "hourly"),
            OwnerError,
            "the table t belongs to ledger ledger-1, not ledger-2",
            "--rebuild-ledger",
        ),
    ],
)
def test_each_difference_has_its_own_way_out(
    expected: TableOwner, error: type[RefusedError], message: str, advice: str
) -> None:
    """Each difference has its own error and advice: first the pipeline, then grid and ledger."""
    with pytest.raises(error) as refused:
        refuse_other_owner("t", BOUND, expected)
    assert (refused.value.message, refused.value.stage) == (message, "setup")
    assert advice in refused.value.advice
    assert ("See " in refused.value.advice) == ("ledger" in message), "backups are of ledgers alone"
