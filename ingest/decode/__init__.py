"""Messages -> rows and dead letters, by one pandera model: columns, strict JSON, rules."""
