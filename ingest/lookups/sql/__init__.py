"""Databases as sources of lookups."""
