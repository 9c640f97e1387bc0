"""Iceberg tables, from the bottom up.

columns        types of columns, field ids, and how the columns of a table change (pure)
metrics        Iceberg's counts and bounds of one Parquet file (pure)
files          PyIceberg's file access, synced on a local disk
catalog_table  a table by its catalog and its name in it; which properties are secrets
storage        a table's files that Iceberg doesn't know, and how tasks open its storage
stage          the Parquet files of one split
catalogs       opening the catalog, and loading tables
create         creating a table, and comparing its columns
commit         one commit on exactly the state that was looked at, sent once
contents       reading the table's rows
store          the table store (`sinks.kit.commit.table_store`)
"""
