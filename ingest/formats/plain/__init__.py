"""Messages that are one value each: text, or bytes as they are."""
