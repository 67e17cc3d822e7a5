"""Show a study on a terminal."""
