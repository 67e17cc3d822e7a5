"""Estimate, compare and rank: numbers in, numbers out."""
