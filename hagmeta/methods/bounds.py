"""The two references of a comparison: no learning in sessions, and access to all train labels."""

from __future__ import annotations

from typing import ClassVar

from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import COMMON, MetaTraining, SessionLearning, Sizes
from hagmeta.methods.paper.hag_meta import HagMeta, HagMetaSettings


class Frozen(HagMeta):
    """Lower reference: nearest class means over the encoder. It learns nothing after pre-training.

    Earlier classes are means over the labels that `rehearsal` allows. With `rehearsal: none`, each mean stays
    as it was at the end of its session. The encoder has not changed since, but the graph has grown.
    """

    decides: ClassVar = {"nla": False, "tla": False}
    differs: ClassVar = COMMON
    traits: ClassVar = MethodTraits(
        title="Frozen",
        citation="Lower reference of this study: nearest class means over the pre-trained encoder.",
        role="bound",
    )
    meta_training = MetaTraining.NONE
    session_learning = SessionLearning.NONE

    def __init__(self, settings: HagMetaSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.requires_grad_(False)


class Joint(HagMeta):
    """Oracle, but no strict upper bound: it reads the train labels of every class seen so far.

    Each class is the mean of its train nodes. Training and sessions take cross-entropy steps on train nodes
    of all classes seen so far, as many steps as the other methods take. `rehearsal` does not apply, because
    an oracle reads all labels. Under `released` it has no advantage: there, all methods know each class by
    all its nodes.
    """

    decides: ClassVar = {"nla": False, "tla": False, "rehearsal": "all"}
    differs: ClassVar = COMMON
    traits: ClassVar = MethodTraits(
        title="Joint",
        citation="Oracle of this study: joint training on the train labels of every class met.",
        role="bound",
        oracle=True,
    )
    meta_training = MetaTraining.SUPERVISED
