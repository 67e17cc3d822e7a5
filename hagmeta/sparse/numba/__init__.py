"""Sparse products on a CPU, compiled by Numba."""
