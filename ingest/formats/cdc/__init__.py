"""Change data: messages that say what happened to rows of a database's table.

Each has an envelope around the row.
"""
