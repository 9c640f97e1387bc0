"""Delta tables, told from the bottom up.

names      identities: application ids, file names, fingerprints (pure)
columns    which types a Delta table holds, and how two schemas differ (pure)
stats      Delta's statistics of one Parquet file
stage      one split's Parquet files
receipts   immutable receipt files, found by the fingerprint that the commit names
log        all application transactions of a snapshot at once
trouble    what deltalake's errors stand for
table      loading, creating, binding and extending a Delta table
sink       the sink itself
dead       the dead letters' own table
rows       counts of what lies in the table, contents: all of it, value by value
janitor    what staged files nobody can need any more
"""
