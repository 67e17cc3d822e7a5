"""Say what a user should know about a configuration before it runs."""

from __future__ import annotations

from hagmeta.common.plugins.identity import without_hash
from hagmeta.config.run_config import RunConfig, runs_in_packs
from hagmeta.methods import METHODS, SessionLearning
from hagmeta.scenarios import make_protocol


def remarks(config: RunConfig) -> list[str]:
    """Return what a user should know about a resolved configuration before it runs."""
    assert config.classes and config.n_way and config.sessions
    notes = [note for note in [vars(config).get("_proposal", "")] if note]
    simulated = config.groups[1]
    if simulated and not config.classes[1]:
        notes.append(
            f"there are no novel-train classes, so the seed draws {simulated} of the {config.classes[0]} "
            "base classes to play new ones in training; metrics count them as base classes"
        )
    left = config.classes[2] - config.sessions * config.n_way
    if left:
        notes.append(
            f"{left} of {config.classes[2]} novel-test classes never arrive: sessions x n_way is "
            f"{config.sessions} x {config.n_way}"
        )
    method, protocol = METHODS[config.method], make_protocol(config)
    if method.traits.oracle and protocol.has_oracles:
        notes.append(f"{config.method} is an oracle: it reads the train labels of every class seen so far")
    notes += method.remarks(config)
    held_out = method.session_learning is SessionLearning.HELD_OUT and not method.traits.oracle
    if held_out and config.k_shot == 1 and config.finetune_steps and not protocol.scores_while_learning:
        nothing = "and no earlier labels can be read again, so nothing is fine-tuned"
        prototypes = "so new classes take part in fine-tuning as prototypes only"
        notes.append(
            "with `k_shot: 1` no support can be held out, "
            + (nothing if config.rehearsed == 0 else prototypes)
        )
    if not runs_in_packs(config):
        kind, name = ("encoder", config.encoder) if method.packs else ("method", config.method)
        name = without_hash(name.rpartition(":")[2])
        notes.append(
            f"the {kind} {name} runs one seed at a time, without packs and checkpoints, and is slower"
        )
    notes += _transductive_remarks(config) if config.unlabelled_nodes == "all" else []
    return notes + protocol.remarks()


def _transductive_remarks(config: RunConfig) -> list[str]:
    """Return what makes the predictions of a run depend on unlabelled nodes, if settings do."""
    notes = []
    if config.smoothing:
        notes.append(
            "smoothing makes predictions transductive: the scores of a query also depend on its visible "
            "neighbours"
        )
    if config.prior == "estimated":
        notes.append(
            "`prior: estimated` makes predictions transductive: it estimates class shares from visible "
            "unlabelled nodes, including queries"
        )
    if config.self_training:
        notes.append(
            "self_training learns from visible unlabelled nodes, including queries, with the method's own "
            "predictions as labels"
        )
    return notes
