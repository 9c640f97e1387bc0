"""Sources of lookups: a kind a file, in the table `kinds`."""
