"""What the other methods are read between: learning nothing in the sessions, and knowing everything."""

from __future__ import annotations

from typing import ClassVar

from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import MetaTraining, SessionLearning, Sizes
from hagmeta.methods.hag_meta import HagMeta, HagMetaSettings


class Frozen(HagMeta):
    """Lower bound: the pre-trained encoder and the nearest mean; nothing is learnt after that.

    A class met earlier is the mean over the labels that `rehearsal` allows; with none, the mean as it was at
    the end of its session: the encoder is the same, but the graph has grown since.
    """

    decides: ClassVar = {"nla": False, "tla": False}
    traits: ClassVar = MethodTraits(
        title="Frozen",
        citation="Lower bound of this study: nearest class means over the pre-trained encoder.",
        role="bound",
    )
    meta_training = MetaTraining.NONE
    session_learning = SessionLearning.NONE

    def __init__(self, settings: HagMetaSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.requires_grad_(False)


class Joint(HagMeta):
    """Upper bound, and an oracle: it knows the train labels of every class met, the novel ones too.

    Every class is known by the mean of its train nodes. Training, and then each session, takes steps of
    cross-entropy on train nodes of all classes met so far, as many steps as the other methods take.
    `rehearsal` does not apply: to know all labels is what it is there for.
    Under `released` it knows no more than the others, who there know every class met by all its nodes.
    """

    decides: ClassVar = {"nla": False, "tla": False, "rehearsal": "all"}
    traits: ClassVar = MethodTraits(
        title="Joint",
        citation="Upper bound of this study: joint training on the train labels of every class met.",
        role="bound",
        oracle=True,
    )
    meta_training = MetaTraining.SUPERVISED
