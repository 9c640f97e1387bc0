"""Windows, receipts and dead letters become visible by one commit loop, over any kind of store."""
