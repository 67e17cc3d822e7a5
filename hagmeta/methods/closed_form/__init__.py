"""Methods with a closed-form head."""
