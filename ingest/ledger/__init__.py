"""The ledger: frozen boundaries, plans, and copies of receipts."""
