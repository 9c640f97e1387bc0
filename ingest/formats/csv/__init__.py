"""CSV: one line a message, its fields the columns in their order."""
