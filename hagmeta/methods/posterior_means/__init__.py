"""Posterior means: estimate class means from few labels, unlabelled nodes and the known classes."""

from hagmeta.methods.posterior_means.method import PosteriorMeans, PosteriorMeansSettings

__all__ = ["PosteriorMeans", "PosteriorMeansSettings"]
