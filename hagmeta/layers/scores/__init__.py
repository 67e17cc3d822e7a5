"""Turn logits into scores."""
