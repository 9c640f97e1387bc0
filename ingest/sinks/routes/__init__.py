"""The kind `routes`: one topic into several tables, with one receipt for each window."""
