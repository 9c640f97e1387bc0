"""Avro: each message is one record, written with a schema that the spec gives."""
