"""Make the tables of a report."""
