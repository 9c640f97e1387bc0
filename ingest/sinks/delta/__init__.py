"""Delta tables, from the bottom up.

columns     types of columns, and how the columns of a table change (pure)
stats       Delta's statistics of one Parquet file
stage       the Parquet files of one split, and files rewritten in wider columns
unsupported features of a table that windrow can't write
table       deltalake: loading a table, its files, a commit on exactly what was loaded
create      creating a table, and the columns that a commit brings
tombstones, merge    tables with a primary key
store       the table store (`sinks.kit.commit.table_store`)
"""
