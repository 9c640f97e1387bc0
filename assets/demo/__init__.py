"""The demo: a real Kafka with a day of orders and of customers' changes, through
Dagster and Spark, and checks against what was produced.

- `python -m windrow.assets.demo run`: everything; a second run writes nothing
- `python -m windrow.assets.demo check`: the check alone
- `python -m windrow.assets.demo ui`: broker and Dagster's UI, until Ctrl-C
- `python -m windrow.assets.demo stop`: ends what the others started
"""
