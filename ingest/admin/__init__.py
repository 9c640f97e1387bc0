"""The administration of a pipeline, except for running it.

That is lag, messages, verification, lost receipts and ledgers, dead letters, rebase and
rebind.
"""
