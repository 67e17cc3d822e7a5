"""The registry of encoders, which are in one file each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hagmeta.common.plugins.registry import Registry
from hagmeta.common.settings.domains import Choice
from hagmeta.common.settings.setting import check_settings, setting
from hagmeta.layers.encoders.base import Encoder, LayerSettings
from hagmeta.layers.encoders.gat import GAT, GatSettings
from hagmeta.layers.encoders.gcn import GCN
from hagmeta.layers.encoders.mlp import MLP
from hagmeta.layers.encoders.pyg_model import adapted
from hagmeta.layers.encoders.sage import SAGE
from hagmeta.layers.encoders.sgc import SGC


def _check(encoder: type[Encoder]) -> None:
    """Raise a UserError unless the settings of a plug-in are declared with `setting`."""
    check_settings("encoder", encoder, LayerSettings)


_ENCODERS: dict[str, type[Encoder]] = {"gcn": GCN, "gat": GAT, "sage": SAGE, "sgc": SGC, "mlp": MLP}
ENCODERS = Registry("encoder", _ENCODERS, base=Encoder, check=_check, forms={"pyg": adapted})


@dataclass(frozen=True, kw_only=True)
class EncoderSettings(GatSettings):
    """Settings of the encoder: its kind and its shape."""

    encoder: str = setting(
        "gcn",
        "graph encoder; sgc is linear, mlp ignores the edges",
        Choice(ENCODERS),
        scope="method",
    )

    def check(self) -> None:
        ENCODERS[self.encoder].check(self)

    def without_effect(self) -> Mapping[str, str]:
        return {} if self.encoder == "gat" else {"heads": "encoder"}


def make_encoder(num_features: int, settings: EncoderSettings, *, twice: bool = False) -> Encoder:
    """Return the configured encoder. `twice` says that it will be differentiated twice."""
    return ENCODERS[settings.encoder](num_features, settings, twice=twice)
