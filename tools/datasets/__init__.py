"""Build the embedded graphs from their sources."""
