"""The Kafka sink: rows become messages of a topic, exactly once per split or per window."""
