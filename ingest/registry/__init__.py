"""The client of a schema registry, and its settings."""
