"""Change data: messages that report changes of rows in a database's table.

Each message has an envelope around the row.
"""
