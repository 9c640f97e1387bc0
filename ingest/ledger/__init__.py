"""Frozen boundaries, plans and copies of receipts: put-if-absent."""

from windrow.ingest.ledger.sql import SqlLedger, open_ledger

__all__ = ["SqlLedger", "open_ledger"]
