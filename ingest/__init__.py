"""Everything between Kafka and a table, without Dagster."""
