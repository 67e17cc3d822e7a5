"""Keep records on disk or in a bucket."""
