"""Read the reference results, and place results among them."""
