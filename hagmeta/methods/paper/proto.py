"""Proto-GCN and Proto-GAT: prototypical networks on graphs, the first baselines of the paper."""

from __future__ import annotations

from typing import ClassVar

from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import COMMON, MetaTraining
from hagmeta.methods.paper.hag_meta import HagMeta


class ProtoGcn(HagMeta):
    """A pre-trained GCN with mean prototypes, fine-tuned in each session.

    It is HAG-Meta without GPIL, NLA and TLA. With the same labels (`pretrain_on`) both compute the same
    results, bit by bit.
    """

    decides: ClassVar = {"encoder": "gcn", "nla": False, "tla": False}
    differs: ClassVar = COMMON
    traits: ClassVar = MethodTraits(
        title="Proto-GCN",
        citation="Jake Snell, Kevin Swersky and Richard Zemel. Prototypical Networks for Few-shot Learning."
        " NeurIPS 2017; over the GCN of Thomas N. Kipf and Max Welling. Semi-Supervised Classification with"
        " Graph Convolutional Networks. ICLR 2017.",
    )
    meta_training = MetaTraining.NONE


class ProtoGat(ProtoGcn):
    """Proto-GCN with a GAT as encoder, which is pre-trained separately."""

    decides: ClassVar = {"encoder": "gat", "nla": False, "tla": False}
    differs: ClassVar = COMMON
    traits: ClassVar = MethodTraits(
        title="Proto-GAT",
        citation="Jake Snell, Kevin Swersky and Richard Zemel. Prototypical Networks for Few-shot Learning."
        " NeurIPS 2017; over the GAT of Petar Veličković, Guillem Cucurull, Arantxa Casanova, Adriana Romero,"
        " Pietro Liò and Yoshua Bengio. Graph Attention Networks. ICLR 2018.",
    )
