"""What a message looks like when it comes in, a row when it goes out, and the columns beside it."""
