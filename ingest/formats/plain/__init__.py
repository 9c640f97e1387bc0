"""Messages that are one value each: a text, or bytes as they are."""
