"""Columns -> columns, one transform after the other.

The rules of the schema are one of them, the last.
"""
