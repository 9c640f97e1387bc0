"""Dagster resources: each turns configuration into one value of `ingest`."""
