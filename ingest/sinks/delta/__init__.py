"""Delta tables, from the bottom up.

columns     the types that a Delta table holds, and how its columns change (pure)
stats       Delta's statistics of one Parquet file
stage       one split's Parquet files
torn_log    a log whose newest entry was cut by a loss of power
unsupported features of a table that windrow can't write
table       deltalake: loading a table, its files, committing on exactly what was loaded
prepare     making a table, and comparing its columns
wide        files rewritten in wider columns
tombstones, merge    tables with a primary key
store       the table store (`ingest.sinks.table_store`)
"""
