"""Run trials with Ray Tune."""
