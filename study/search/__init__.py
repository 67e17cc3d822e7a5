"""Hyperparameter searches, from their first sample to the table.

``workflow`` calls the rest: ``history`` proposes samples and keeps what they found, ``running`` gets them to
the machines, ``objective`` scores them. ``confirmation`` runs the best of each search on fresh seeds, and
``overlap`` counts how many of those seeds' test labels the search has known.
"""
