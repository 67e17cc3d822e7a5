"""Find the parts of results that answer a question: factorials, one setting at a time, protocols, N and K."""
