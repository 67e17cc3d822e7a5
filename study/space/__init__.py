"""Read search spaces, and expand them into configurations."""
