"""Settings, their domains and their names in hashes."""
