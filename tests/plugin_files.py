"""The source of a plug-in, for tests to write to a file outside the repository."""

METHOD = '''
from dataclasses import dataclass

import hagmeta
from hagmeta.methods.prototypes.cec import Cec


@dataclass(frozen=True, kw_only=True)
class MineSettings(hagmeta.MethodSettings):
    """One setting."""

    my_scale: float = hagmeta.setting(
        10.0, "multiplies it", hagmeta.Number(above=0, at_most=100), scope="method"
    )


class Mine(Cec):
    """A method of somebody else's."""

    own_settings = MineSettings
'''
