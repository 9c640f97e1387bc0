"""The columns of a table: their types, their changes, and their values as JSON or text."""
