"""Plan the runs of a study, and what each trial may use."""
