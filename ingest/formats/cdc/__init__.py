"""Change data: messages that say what became of the rows of a database's table, in an
envelope around them.
"""
