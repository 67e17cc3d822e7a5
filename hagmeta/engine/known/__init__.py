"""What is visible and known, and the tasks made of it."""
