"""What a person can ask of a pipeline or do to it besides running it: lag, messages,
verification, lost receipts and ledgers, dead letters, rebase and rebind.
"""
