"""The Dagster side of windrow: a spec becomes assets, partitions, a schedule and checks."""
