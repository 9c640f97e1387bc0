"""The demo: a real Kafka with a day of orders and of customers' changes, through Dagster and Spark, and checks against what was produced.

- `python -m assets.demo run`: everything; a second run writes nothing
- `python -m assets.demo check`: the check alone
- `python -m assets.demo ui`: broker and Dagster's UI, until Ctrl-C
- `python -m assets.demo stop`: ends what the others started
"""
