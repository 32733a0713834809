"""Which attributes are gridded together.

Most attributes stand alone. Wind is a vector: the mean of 350° and 10° is 0°, not 180°, so speed and direction
meet in one group, become eastward and northward components, and these are gridded.
"""

from dataclasses import dataclass

WIND = "wind"


@dataclass(frozen=True, slots=True)
class Group:
    """Attributes whose measurements travel together, and what is published from them."""

    name: str
    """the key under which Spark groups"""
    inputs: tuple[str, ...]
    """attributes of measurements; a measurement's `code` counts them"""
    outputs: tuple[str, ...]
    """attributes of the grids"""


_WIND = Group(
    WIND,
    inputs=("wind_speed", "wind_from_direction", "eastward_wind", "northward_wind"),
    outputs=("eastward_wind", "northward_wind"),
)
SPEED, DIRECTION, EASTWARD, NORTHWARD = range(4)


def group_named(name: str) -> Group:
    """The group of that name."""
    return _WIND if name == WIND else Group(name, (name,), (name,))


def groups_of(attributes: tuple[str, ...]) -> tuple[Group, ...]:
    """The groups that a grid with these attributes needs, in the order of the attributes."""
    names = dict.fromkeys(WIND if a in _WIND.inputs else a for a in attributes)
    return tuple(group_named(name) for name in names)
