"""Run hyperparameter searches, from the first sample to the table.

``workflow`` calls the other modules. ``history`` proposes samples and finds their results in the records,
``running`` runs them on Ray Tune, and ``objective`` scores them. ``files`` writes the samples for reports.
``confirmation`` runs the best sample of each search on fresh seeds. ``overlap`` counts how many test labels
of those seeds the search has used.
"""
