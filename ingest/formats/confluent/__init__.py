"""Confluent's wire formats: each message names the schema that it was written with.

The name is before the value, or in a header.
"""
