"""The demo: a day of orders and of customers' changes through Kafka, Dagster and Spark.

The tables are checked against the produced messages.

- `python -m windrow.assets.demo run`: everything; a second run writes nothing
- `python -m windrow.assets.demo check`: only the check
- `python -m windrow.assets.demo ui`: broker and Dagster's UI, until Ctrl-C
- `python -m windrow.assets.demo stop`: ends the programs that the others started
"""
