"""Transforms: columns to columns, one after the other.

The rules of the schema are the last of them.
"""
