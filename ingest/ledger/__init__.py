"""The ledger: frozen boundaries, plans and copies of receipts, each written once."""

from windrow.ingest.ledger.sql import SqlLedger, open_ledger

__all__ = ["SqlLedger", "open_ledger"]
