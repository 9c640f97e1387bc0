"""Iceberg tables, told from the bottom up.

columns    which types an Iceberg table holds, field ids, and how two schemas differ (pure)
metrics    Iceberg's counts and bounds of one Parquet file (pure)
files      how files reach the disk or the store: PyIceberg's file systems, synced
place      files of the table that Iceberg doesn't know: staged ones, receipts, pages
stage      one split's Parquet files
at         where a table is: its catalog, and its name there
secrets    which of a catalog's properties are secrets
storage    how tasks open a table's storage without being sent a secret
database   a catalog in a database
catalogs   opening and asking the catalog, and what its errors stand for
prepare    creating, owning and comparing a table
commit     one commit on exactly the state that was looked at, sent once
contents   what lies in the table, row by row
store      the table store: states of the table, and changes on them
"""
