"""What a kind of sink is made of."""
