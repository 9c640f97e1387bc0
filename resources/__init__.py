"""Dagster resources: source, table, ledger and Spark of a pipeline."""
