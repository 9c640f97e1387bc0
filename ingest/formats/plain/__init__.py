"""Messages that are a single value: a text, bytes, or a number in binary form."""
