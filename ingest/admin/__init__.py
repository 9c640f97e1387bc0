"""The administration of a pipeline, apart from running it.

Lag, messages, verification, lost receipts and ledgers, dead letters, rebase and rebind.
"""
