"""Kafka topics become tables, one bounded window at a time, exactly once; a library that needs no Dagster."""
