"""Proto-GCN and Proto-GAT: prototypical networks on graphs, the paper's first baselines."""

from __future__ import annotations

from typing import ClassVar

from hagmeta.methods.base import MetaTraining
from hagmeta.methods.hag_meta import HagMeta


class ProtoGcn(HagMeta):
    """The pre-trained GCN, mean prototypes, and fine-tuning in each session.

    It is HAG-Meta with all three of its parts off, and computes the same to the bit, from the same labels
    (`pretrain_on`).
    """

    decides: ClassVar = {"encoder": "gcn", "nla": False, "tla": False}
    meta_training = MetaTraining.NONE


class ProtoGat(ProtoGcn):
    """The same over a GAT, which has a pre-training of its own."""

    decides: ClassVar = {"encoder": "gat", "nla": False, "tla": False}
