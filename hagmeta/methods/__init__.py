"""The methods, one file each, and the registry that finds them by name."""

from __future__ import annotations

from hagmeta.common.plugins.registry import Registry
from hagmeta.common.settings.setting import check_settings
from hagmeta.methods.base import MetaTraining, Method, MethodSettings, SessionLearning, Shared, Sizes, Task
from hagmeta.methods.bounds import Frozen, Joint
from hagmeta.methods.classifiers.ewc import Ewc
from hagmeta.methods.classifiers.lwf import Lwf
from hagmeta.methods.closed_form import sklearn_estimator
from hagmeta.methods.closed_form.fecam import FeCam
from hagmeta.methods.closed_form.fscil_calibration import FscilCalibration
from hagmeta.methods.closed_form.gkeal import Gkeal
from hagmeta.methods.closed_form.graphany import GraphAny
from hagmeta.methods.closed_form.klda import Klda
from hagmeta.methods.closed_form.loranpac import LoRanPac
from hagmeta.methods.closed_form.ranpac import RanPac
from hagmeta.methods.closed_form.sgc import SgcLda, SgcNcm, SgcRidge
from hagmeta.methods.meta_learning.amm_gnn import AmmGnn
from hagmeta.methods.meta_learning.meta_gnn import MetaGnn
from hagmeta.methods.paper.gpn import Gpn
from hagmeta.methods.paper.hag_meta import HagMeta
from hagmeta.methods.paper.proto import ProtoGat, ProtoGcn
from hagmeta.methods.posterior_means import PosteriorMeans
from hagmeta.methods.prototypes.cec import Cec
from hagmeta.methods.prototypes.fact import Fact
from hagmeta.methods.prototypes.geometer import Geometer
from hagmeta.methods.prototypes.lpmc import Lpmc
from hagmeta.methods.prototypes.mecoin import MeCoin
from hagmeta.methods.prototypes.rale import Rale
from hagmeta.methods.prototypes.random_encoder import RandomEncoder
from hagmeta.methods.prototypes.tap import Tap
from hagmeta.methods.prototypes.teen import Teen
from hagmeta.methods.prototypes.tlp import Tlp
from hagmeta.methods.replay.er_gnn import ErGnn
from hagmeta.methods.replay.icarl import ICarl
from hagmeta.methods.transductive.label_spreading import LabelSpreading
from hagmeta.methods.transductive.laplacian_shot import LaplacianShot
from hagmeta.methods.transductive.pt_map import PtMap

__all__ = [
    "METHODS",
    "MetaTraining",
    "Method",
    "MethodSettings",
    "SessionLearning",
    "Shared",
    "Sizes",
    "Task",
    "make_method",
]


def _check(method: type[Method]) -> None:
    """Raise a UserError unless the settings of a plug-in are declared with `setting`.

    A plug-in that does not name its settings has those of the method that it extends.
    """
    for base in method.__mro__:
        if "own_settings" in vars(base) or base in _METHODS.values():  # built-in methods do not inherit them
            method.own_settings = vars(base).get("own_settings")
            break
    check_settings("method", method, MethodSettings)


_METHODS: dict[str, type[Method]] = {
    "hag-meta": HagMeta,
    "proto-gcn": ProtoGcn,
    "proto-gat": ProtoGat,
    "meta-gnn": MetaGnn,
    "gpn": Gpn,
    "er-gnn": ErGnn,
    "icarl": ICarl,
    "cec": Cec,
    "teen": Teen,
    "tlp": Tlp,
    "lwf": Lwf,
    "ewc": Ewc,
    "geometer": Geometer,
    "tap": Tap,
    "fact": Fact,
    "lpmc": Lpmc,
    "amm-gnn": AmmGnn,
    "rale": Rale,
    "mecoin": MeCoin,
    "sgc-ncm": SgcNcm,
    "sgc-ridge": SgcRidge,
    "sgc-lda": SgcLda,
    "ranpac": RanPac,
    "fecam": FeCam,
    "fscil-calibration": FscilCalibration,
    "laplacian-shot": LaplacianShot,
    "pt-map": PtMap,
    "klda": Klda,
    "loranpac": LoRanPac,
    "gkeal": Gkeal,
    "label-spreading": LabelSpreading,
    "graphany": GraphAny,
    "random-encoder": RandomEncoder,
    "posterior-means": PosteriorMeans,
    "frozen": Frozen,
    "joint": Joint,
}
METHODS = Registry(
    "method", _METHODS, base=Method, check=_check, forms={"sklearn": sklearn_estimator.adapted}
)


def make_method(settings: MethodSettings, sizes: Sizes, seed: int) -> Method:
    """Return the configured method, with parameters initialised from `seed`."""
    return METHODS[settings.method](settings, sizes, seed)
