"""Graphs inside this package."""
