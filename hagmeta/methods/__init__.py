"""The methods, one file each, and the registry that finds them by name."""

from __future__ import annotations

from hagmeta.common.registry import Registry
from hagmeta.common.settings import check_settings
from hagmeta.methods.amm_gnn import AmmGnn
from hagmeta.methods.base import MetaTraining, Method, MethodSettings, SessionLearning, Shared, Sizes, Task
from hagmeta.methods.bounds import Frozen, Joint
from hagmeta.methods.cec import Cec
from hagmeta.methods.er_gnn import ErGnn
from hagmeta.methods.ewc import Ewc
from hagmeta.methods.fact import Fact
from hagmeta.methods.fecam import FeCam
from hagmeta.methods.fscil_calibration import FscilCalibration
from hagmeta.methods.geometer import Geometer
from hagmeta.methods.gkeal import Gkeal
from hagmeta.methods.gpn import Gpn
from hagmeta.methods.hag_meta import HagMeta
from hagmeta.methods.icarl import ICarl
from hagmeta.methods.klda import Klda
from hagmeta.methods.laplacian_shot import LaplacianShot
from hagmeta.methods.loranpac import LoRanPac
from hagmeta.methods.lpmc import Lpmc
from hagmeta.methods.lwf import Lwf
from hagmeta.methods.mecoin import MeCoin
from hagmeta.methods.meta_gnn import MetaGnn
from hagmeta.methods.posterior_means import PosteriorMeans
from hagmeta.methods.proto import ProtoGat, ProtoGcn
from hagmeta.methods.pt_map import PtMap
from hagmeta.methods.rale import Rale
from hagmeta.methods.ranpac import RanPac
from hagmeta.methods.sgc import SgcLda, SgcNcm, SgcRidge
from hagmeta.methods.tap import Tap
from hagmeta.methods.teen import Teen
from hagmeta.methods.tlp import Tlp

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
    """Raise a UserError unless the settings of a plug-in are declared with `setting`."""
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
    "posterior-means": PosteriorMeans,
    "frozen": Frozen,
    "joint": Joint,
}
METHODS = Registry("method", _METHODS, base=Method, check=_check)


def make_method(settings: MethodSettings, sizes: Sizes, seed: int) -> Method:
    """Return the configured method, with parameters initialised from `seed`."""
    return METHODS[settings.method](settings, sizes, seed)
