"""Tables in an SQLite file: rows, receipts and notes in one transaction."""
