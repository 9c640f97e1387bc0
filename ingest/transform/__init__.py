"""Transforms: each turns decoded rows into other rows, one after the other.

The last transform checks the rules of the schema.
"""
