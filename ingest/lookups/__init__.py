"""Sources of lookups: one folder per kind. The module `kinds` lists the kinds."""
