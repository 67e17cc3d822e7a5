"""GPN (Ding et al., CIKM 2020): graph prototypical networks."""

from __future__ import annotations

from typing import ClassVar

from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import COMMON, MetaTraining
from hagmeta.methods.paper.hag_meta import HagMeta


class Gpn(HagMeta):
    """Prototypes weighted by a node valuator, trained on ordinary N-way K-shot episodes.

    GPN's valuator is HAG-Meta's NLA: a second GNN scores the supports, and the scores, adjusted by the
    log-degree, become their weights. GPN is not incremental. We made these choices to adapt it:

    - Episodes come from the novel-train classes, the "meta-train" classes of the paper. Base classes are used
      for pre-training.
    - Classes with many labelled nodes have the plain mean as prototype, as in HAG-Meta.
    - Sessions fine-tune it like the other methods, with its own loss over all classes seen so far. The
      published GPN has no fine-tuning; set `finetune_steps: 0` for that.

    Labels of earlier sessions are read again as in HAG-Meta.
    """

    decides: ClassVar = {"nla": True, "tla": False}
    differs: ClassVar = COMMON
    traits: ClassVar = MethodTraits(
        title="GPN",
        citation="Kaize Ding, Jianling Wang, Jundong Li, Kai Shu, Chenghao Liu and Huan Liu. Graph"
        " Prototypical Networks for Few-shot Learning on Attributed Networks. CIKM 2020.",
        revision=2,  # since 2, tasks have two classes if N is 1
    )
    meta_training = MetaTraining.FEW_SHOT
