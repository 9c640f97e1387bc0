"""The package between Kafka and a table. It doesn't need Dagster."""
