"""Formats: bytes to columns, or a reason. Each has a folder."""
