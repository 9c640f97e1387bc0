"""Tables as sources of lookups: workers hold one version of a table in memory."""
