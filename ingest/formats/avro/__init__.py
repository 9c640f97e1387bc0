"""Avro: one record a message, by a writer's schema that the spec gives."""
