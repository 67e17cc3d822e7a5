"""Methods with a growing linear classifier."""
