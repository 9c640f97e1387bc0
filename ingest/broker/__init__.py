"""What windrow asks of a Kafka cluster before it reads: client properties, metadata questions, and a real broker for trying and testing."""
