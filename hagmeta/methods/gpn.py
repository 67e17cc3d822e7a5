"""GPN (Ding et al., CIKM 2020): graph prototypical networks."""

from __future__ import annotations

from typing import ClassVar

from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import MetaTraining
from hagmeta.methods.hag_meta import HagMeta


class Gpn(HagMeta):
    """Prototypes weighed by a node valuator, trained on ordinary N-way K-shot episodes.

    HAG-Meta's NLA is GPN's valuator: scores of a second GNN, adjusted by the logarithm of the degree, make
    the weights of a class's supports. What had to be decided here, since GPN knows no increments:
    - episodes come from the novel-train classes, as the paper's "meta-train" classes; base classes serve
      for pre-training;
    - classes known by many nodes have the plain mean as prototype, as in HAG-Meta;
    - in a session it is fine-tuned as the other methods are, on its own loss over all classes met. GPN as
      published does not: `finetune_steps: 0`.
    Labels of earlier sessions are read again as by HAG-Meta.
    """

    decides: ClassVar = {"nla": True, "tla": False}
    traits: ClassVar = MethodTraits(
        title="GPN",
        citation="Kaize Ding, Jianling Wang, Jundong Li, Kai Shu, Chenghao Liu and Huan Liu. Graph"
        " Prototypical Networks for Few-shot Learning on Attributed Networks. CIKM 2020.",
        revision=2,  # where N is 1, tasks have two classes
    )
    meta_training = MetaTraining.FEW_SHOT
