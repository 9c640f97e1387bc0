"""Protobuf, a message of a type told in the spec, each judged alone by Protobuf's own library."""
