"""The commit loop and the tables of windows, receipts and dead letters, over any kind of store."""
