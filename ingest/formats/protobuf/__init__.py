"""Protobuf: each message is of a type that the spec names."""
