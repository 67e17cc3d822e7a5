"""Sparse products on a GPU, compiled by Triton."""
