"""Confluent's wire formats: each message names the schema that it was written with,
before its value or in a header.
"""
