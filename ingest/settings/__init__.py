"""Reads and checks settings of any section: YAML, templates, types of values, secrets."""
