"""Schemas of messages, of rows, and of the metadata columns of a row."""
