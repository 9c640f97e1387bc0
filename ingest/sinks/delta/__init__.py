"""Delta tables, from the bottom up.

columns      types of columns, and changes of a table's columns (pure)
stats        Delta's statistics of one Parquet file
stage        the Parquet files of one split, and files rewritten in wider columns
unsupported  features of a table that windrow can't write
table        deltalake: loads a table, reads its log, commits on exactly the loaded version
create       creates a table, and finds the new columns of a commit
tombstones   files of deleted keys, for tables with a primary key
merge        merges of changes into tables with a primary key
store        the table store (`sinks.kit.commit.table_store`)
snapshots    versions of any Delta table, for lookups
kind         the section of the spec
"""
