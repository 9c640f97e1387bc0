"""Iceberg tables, from the bottom up.

columns        the types that an Iceberg table holds, field ids, how columns change (pure)
metrics        Iceberg's counts and bounds of one Parquet file (pure)
files          PyIceberg's file access, synced on a local disk
place          files of the table that Iceberg doesn't know: staged ones, receipts, pages
stage          one split's Parquet files
secrets        which properties of a catalog are secrets
catalog_table  a table by its catalog and its name in it
storage        how tasks open a table's storage without being sent a secret
catalogs       opening and asking the catalog
prepare        creating a table, and comparing it with what is wanted
commit         one commit on exactly the state that was looked at, sent once
contents       reading the table's rows
store          the table store (`ingest.sinks.table_store`)
"""
