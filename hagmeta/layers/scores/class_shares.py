"""Estimate the shares of classes without labels, and re-weight predictions by them."""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS = 20  # of EM, and of the search for a scale
PSEUDO_COUNT = 10.0  # nodes that the prior adds to each class; it is a symmetric Dirichlet distribution
CONFIDENCE = 0.98  # mean of the largest probability of a node, before re-weighting
WIDEST = 20.0  # scales are between 2 ** -WIDEST and 2 ** WIDEST


def share_adjustment(logits: Tensor, counted: Tensor) -> Tensor:
    """Return what to add to logits (classes,), so that classes weigh as much as their estimated shares.

    Shares are estimated from ``scale * logits``, and their logarithms are divided by `scale`. So predictions
    do not depend on the scale of a method's logits.

    Args:
        logits: the logits of all nodes (nodes, classes), if all classes are equally likely.
        counted: the weight of each node (nodes,); 0 for nodes that do not count.
    """
    scale = scale_of(logits, counted)
    return log_shares(scale * logits, counted) / scale


def log_shares(logits: Tensor, counted: Tensor) -> Tensor:
    """Return logarithms of class shares (classes,), estimated by EM. The arguments are as above.

    This is the algorithm of Saerens, Latinne and Decaestecker (Neural Computation, 2002). Each round weights
    the probabilities of all nodes by the shares, and counts the nodes of each class in fractions.
    """
    shares = torch.zeros_like(logits[0])
    for _ in range(ROUNDS):
        counts = counted @ (logits + shares).softmax(-1) + PSEUDO_COUNT
        shares = (counts / counts.sum()).log()
    return shares


def scale_of(logits: Tensor, counted: Tensor, confidence: float = CONFIDENCE) -> Tensor:
    """Return the factor of `logits` at which the mean of the largest probability is `confidence`."""
    below = logits - logits.amax(-1, keepdim=True)
    total = counted.sum()
    exponent, step = torch.zeros_like(total), WIDEST / 2
    for _ in range(ROUNDS):
        largest = 1 / (below * exponent.exp2()).exp().sum(-1)
        exponent = exponent + torch.where(counted @ largest < confidence * total, step, -step)
        step /= 2
    return exponent.exp2()
