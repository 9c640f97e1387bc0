"""An embedded Kafka: one broker on 127.0.0.1, and the download of its jars."""
