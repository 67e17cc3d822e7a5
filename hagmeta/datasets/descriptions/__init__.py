"""Descriptions of graphs: numbers and tables."""
