"""Sinks: stage on executors, then one commit of data and receipt on the driver.

From the bottom up:

    names      identities: application ids, file names, fingerprints (pure)
    columns    the table's columns and how two schemas differ (pure)
    metadata   the metadata columns of a batch of messages (pure)
    decision   what a commit may do, given what the table holds (pure)
    place      files of the table that Delta doesn't know: staged ones and receipts
    rights     whether a table can be made at a place, and if not, why
    stats      Delta's statistics of one Parquet file
    stage      one split's Parquet files
    receipts   immutable receipt files, found by the fingerprint that the commit names
    log        all application transactions of a snapshot at once
    table      loading, creating, binding and extending a Delta table
    delta      the sink itself
    dead       the dead letters' own table
    janitor    what staged files nobody can need any more
"""
