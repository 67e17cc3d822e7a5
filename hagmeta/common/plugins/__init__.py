"""Registries and plug-ins."""
