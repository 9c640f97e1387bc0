"""Columns of a table: which types it holds, how they change, and their values as JSON or text."""
