"""The ledger's copy of a receipt is held against the table's: an older one harms
nothing, a newer one is a table that went back.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.model.test_plan import PLAN
from tests.model.test_receipt import receipt
from windrow.ingest.admin.copies import Kept, compare_ledger

MADE = msgspec.structs.replace(receipt(PLAN.digest), generation=1)


@pytest.mark.parametrize(
    ("copy", "level", "what"),
    [
        (None, "info", "the ledger's copy of the receipt is missing or older"),
        (
            msgspec.structs.replace(MADE, generation=0),
            "info",
            "the ledger's copy of the receipt is missing or older",
        ),
        (
            msgspec.structs.replace(MADE, generation=2),
            "wrong",
            "the ledger's copy of the receipt is newer",
        ),
        (
            msgspec.structs.replace(MADE, attempt="b"),
            "wrong",
            "the ledger's copy of the receipt differs",
        ),
    ],
)
def test_a_copy_that_is_not_the_tables(copy: object, level: str, what: str) -> None:
    """A run that died after its commit leaves an older one; a newer one was committed,
    and is not in the table any more.
    """
    found = compare_ledger(MADE, Kept(PLAN.start, PLAN.stop, PLAN, copy), MADE.ledger)  # type: ignore[arg-type]
    assert [(f.level, f.what) for f in found] == [(level, what)]
    assert compare_ledger(MADE, Kept(PLAN.start, PLAN.stop, PLAN, MADE), MADE.ledger) == []
