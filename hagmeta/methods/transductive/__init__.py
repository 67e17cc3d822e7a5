"""Closed-form methods that also use unlabelled nodes."""
