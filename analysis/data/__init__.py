"""Read records, and name and group the runs in them."""
