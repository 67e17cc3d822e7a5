"""Records of runs, and what they may hold."""
