"""Training before the sessions."""
