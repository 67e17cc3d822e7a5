"""Methods that learn to adapt in a few steps."""
