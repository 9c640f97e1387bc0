"""A real Kafka, one node, on loopback, and where its programs come from."""
