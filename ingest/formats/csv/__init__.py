"""CSV: each message is one line, and its fields are the columns in their order."""
