"""Ways to interpolate, by name."""

from sensorgrid.model.errors import SensorGridError
from sensorgrid.pipeline.gridding.kernels.interface import Kernel
from sensorgrid.pipeline.gridding.kernels.inverse_distance import InverseDistance
from sensorgrid.pipeline.gridding.kernels.kriging import Kriging
from sensorgrid.pipeline.gridding.kernels.nearest import Nearest
from sensorgrid.pipeline.gridding.kernels.optimal import Optimal

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel for kernel in (Nearest(), InverseDistance(), Kriging(), Optimal())
}
"""every kernel, by the name that the configuration and the lake spell"""
DEFAULT = "kriging"
"""the best that is always there"""
CHEAP = "inverse_distance"
"""for when there is no time"""


class UnknownKernelError(SensorGridError, KeyError):
    """A kernel that does not exist."""


def kernel_by_name(name: str) -> Kernel:
    """The kernel of that name.

    Examples
    --------
    >>> kernel_by_name("kriging").neighbours
    24
    """
    try:
        return KERNELS[name]
    except KeyError:
        raise UnknownKernelError(
            f"kernel: found {name!r}, expected one of {', '.join(sorted(KERNELS))}"
        ) from None
