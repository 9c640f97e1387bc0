"""Schema registry: its client, and its settings."""
