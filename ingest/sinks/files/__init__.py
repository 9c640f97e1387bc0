"""Files for readers without a table format, told from the bottom up.

entry      one entry of the log: what began the table, brought a window, or gave staged
files up (pure) state      the log folded up: which files the table is made of now
(pure) columns    what a table's columns may become, and what a format can't hold (pure)
log        entries and checkpoints, read and written text       rows as lines of JSON or
CSV, and back, whole columns at a time stage      one split's files sink       the sink
itself janitor    what no entry names, or names no more audit      what verification
asks reader     for readers: which files make up the table
"""
