"""Formats: each folder holds one, and decodes bytes to columns or refuses them with a reason."""
