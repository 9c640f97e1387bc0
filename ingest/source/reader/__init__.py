"""One split of Kafka into Arrow batches of messages."""
