"""One topic into several tables, with one receipt for a window."""
