"""Delta tables, told from the bottom up.

names      what stands in the log and in the table's folder
columns    which types a Delta table holds, and how two schemas differ (pure)
stats      Delta's statistics of one Parquet file
stage      one split's Parquet files
trouble    what deltalake's errors stand for
demands    what a table asks of its writers that windrow doesn't do
table      deltalake: loading a table, its files, writing on what was loaded
prepare    making a table; its columns
wide       files written anew in wider columns
tombstones, merge    tables with a primary key
store      the store of the one commit loop (`ingest.sinks.settle`)
"""
