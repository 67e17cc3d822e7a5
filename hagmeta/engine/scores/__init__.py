"""From logits to scores."""
