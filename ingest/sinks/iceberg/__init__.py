"""Iceberg tables, from the bottom up.

columns              types of columns, field ids, and changes of a table's columns (pure)
column_metrics       Iceberg's counts and bounds of one Parquet file (pure)
file_io              PyIceberg's file access, synced on a local disk
catalog_table        a table by its catalog and its name in it; which properties are secrets
pyiceberg_internals  the private names of PyIceberg that windrow uses
storage              a table's files that Iceberg doesn't know, and storages opened by tasks
stage                the Parquet files of one split
catalogs             opens the catalog, and loads tables
create               creates a table, and compares its columns
commit               one commit on exactly the state that was looked at, sent once
contents             reads the table's rows
store                the table store (`sinks.kit.commit.table_store`)
snapshots            snapshots of any Iceberg table, for lookups
kind                 the section of the spec
"""
