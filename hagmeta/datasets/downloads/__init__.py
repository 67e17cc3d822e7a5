"""Graphs that are downloaded."""
