"""Tables as sources of lookups: a version of them, held in memory."""
