"""Protobuf: one message of a type that the spec names."""
