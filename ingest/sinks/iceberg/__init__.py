"""Iceberg tables, told from the bottom up.

names      identities and file names (pure)
columns    which types an Iceberg table holds, field ids, and how two schemas differ (pure)
metrics    Iceberg's counts and bounds of one Parquet file (pure)
files      how files reach the disk or the store: PyIceberg's file systems, synced
place      files of the table that Iceberg doesn't know: staged ones, receipts, pages
pages      which windows the table holds: a few files, named by the newest snapshot of windrow's
stage      one split's Parquet files
at         where a table is: its catalog, and its name there
database   a catalog in a database
catalogs   opening and asking the catalog, and what its errors stand for
table      a look at the table, and one commit on exactly what was looked at
receipts   immutable receipt files, found by what the pages say
prepare    creating, binding and comparing a table
sink       the sink itself
dead       the dead letters' own table
contents   what lies in the table, row by row
audit      what verification asks
janitor    what staged files nobody can need any more
"""
