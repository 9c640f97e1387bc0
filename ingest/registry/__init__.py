"""Schema registry: its client, its settings, and an embedded one for development."""
