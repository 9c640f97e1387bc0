"""What a user writes: one model for YAML, Python and the command."""
