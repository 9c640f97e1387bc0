"""The ledger as a Dagster resource."""

from __future__ import annotations

import dagster as dg
from pydantic import Field

from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.ports.ledger import Ledger


class LedgerState(dg.ConfigurableResource[None]):
    """The database of boundaries, plans and copies of receipts: SQLite or PostgreSQL."""

    url: str = Field(repr=False, description="A path, sqlite:///path or postgresql+psycopg://...")

    def ledger(self) -> Ledger:
        """Opens the ledger. The first write creates it.

        Raises:
            UnreachableError: the database doesn't answer.
        """
        return open_ledger(self.url)
