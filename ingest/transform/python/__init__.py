"""The `python` step: a user's function over batches of rows."""
