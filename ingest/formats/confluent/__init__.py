"""Confluent's wire formats: each message has the id of the schema that it was written with.

The id is before the value, or in a header.
"""
