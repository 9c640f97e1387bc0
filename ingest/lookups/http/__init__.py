"""HTTP services as sources of lookups."""
