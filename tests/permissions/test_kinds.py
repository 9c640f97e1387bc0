"""docs/permissions.md has what each kind of sink, lookup and ledger needs."""

from __future__ import annotations

import pytest

from tests.docs import permissions
from tests.permissions.features import LEDGERS, LOOKUPS, SINKS
from windrow.ingest.ledger.database import NAME_QUERIES
from windrow.ingest.lookups.kinds import SOURCES
from windrow.ingest.sinks.kinds import KINDS


@pytest.mark.parametrize(
    ("documented", "kinds"),
    [(SINKS, KINDS), (LOOKUPS, SOURCES), (LEDGERS, NAME_QUERIES)],
    ids=["sinks", "lookups", "ledgers"],
)
def test_each_kind_is_documented(documented: dict[str, str], kinds: dict[str, str]) -> None:
    """Each kind has its rights on the page."""
    assert set(documented) == set(kinds)


def test_the_page_is_generated() -> None:
    """The page is what `make docs` writes."""
    assert permissions.PAGE.read_text(encoding="utf-8") == permissions.page()
