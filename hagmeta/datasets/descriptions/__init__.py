"""Descriptions of graphs: numbers, tables and a page."""
