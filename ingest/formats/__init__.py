"""Bytes -> columns, or a reason: one folder a format."""
