"""What is known about each attribute before a single measurement has come: units, limits, usual variation.

Limits are canonical units (CF). *Gross* limits are physics and instruments: outside is a failure (QARTOD 4).
*Usual* limits are the climate of the earth: outside is suspect (3). The rates and spreads are priors for the
time-series checks and for a grid that has no measurement to learn from; a configuration can override all.
"""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: its canonical unit, limits and usual behaviour."""

    name: str
    """CF standard name"""
    unit: str
    """canonical unit, in UDUNITS spelling"""
    gross: tuple[float, float]
    """no instrument reads a true value outside"""
    usual: tuple[float, float]
    """the climate of the earth rarely goes outside"""
    step: float
    """larger jumps between two consecutive reports are suspect"""
    rate: float
    """faster changes are suspect, per hour"""
    spike: float
    """a value that leaves both neighbours in time by more is suspect"""
    flat_s: float
    """an unchanged value for longer than this is suspect; 0 switches the check off (rain, calm)"""
    mean: float
    """a value to expect where nothing at all is known"""
    spread: float
    """the error of that expectation, one standard deviation"""
    length: float
    """distance over which values are alike, in metres"""
    noise: float
    """usual error of one report, one standard deviation"""
    drift: float
    """how far values wander in an hour, one standard deviation"""
    family: Literal["any", "positive", "bounded"]
    """which transforms suit: none, a logarithm of what is positive and skewed, one between two walls"""

    @property
    def physical(self) -> tuple[float | None, float | None]:
        """No grid leaves this range: readings may, by their own error."""
        if self.family == "positive":
            return 0.0, None
        return (0.0, 1.0) if self.family == "bounded" else self.gross


_HOUR = 3600.0
_DAY = 24 * _HOUR

_ROWS: tuple[tuple[object, ...], ...] = (
    # unit; gross and usual limits; step, rate an hour, spike, flat; mean, spread; length in km, noise, drift an hour
    ("air_temperature",
     "K", (173.15, 343.15), (188.15, 328.15), 12, 15, 8, _DAY, 288, 15, 600, 1, 1),
    ("dew_point_temperature",
     "K", (153.15, 323.15), (183.15, 308.15), 12, 15, 8, _DAY, 280, 13, 600, 1.2, 1),
    ("air_pressure_at_mean_sea_level",
     "Pa", (80000, 112000), (87000, 108500), 1200, 1000, 600, 2 * _DAY, 101300, 1100, 1200, 80, 80),
    ("relative_humidity",
     "1", (0, 1.15), (0.02, 1.05), 0.5, 0.6, 0.4, 4 * _DAY, 0.7, 0.2, 400, 0.05, 0.06),
    ("wind_speed",
     "m s-1", (0, 120), (0, 70), 20, 30, 15, 0, 4, 3.5, 400, 1.2, 1.2),
    ("wind_from_direction",
     "degree", (0, 360), (0, 360), 360, 1e9, 360, 0, 180, 100, 400, 15, 20),
    ("eastward_wind",
     "m s-1", (-120, 120), (-70, 70), 25, 40, 20, 0, 0, 5, 400, 1.5, 1.2),
    ("northward_wind",
     "m s-1", (-120, 120), (-70, 70), 25, 40, 20, 0, 0, 5, 400, 1.5, 1.2),
    ("precipitation_amount",
     "kg m-2", (0, 1500), (0, 300), 150, 300, 1e9, 0, 0.3, 2, 100, 0.5, 1),
    ("sea_surface_temperature",
     "K", (268.15, 318.15), (270.15, 309.15), 4, 4, 3, 10 * _DAY, 290, 9, 800, 0.5, 0.15),
    ("mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air",
     "kg m-3", (-1e-8, 5e-6), (0, 1e-6), 3e-7, 5e-7, 3e-7, 2 * _DAY, 1.2e-8, 1.5e-8, 150, 4e-9, 4e-9),
    ("sea_surface_wave_significant_height",
     "m", (0, 35), (0, 20), 4, 4, 4, 2 * _DAY, 1.8, 1.3, 500, 0.2, 0.25),
)  # fmt: skip


_FAMILY: dict[str, Literal["any", "positive", "bounded"]] = {
    "wind_speed": "positive",
    "precipitation_amount": "positive",
    "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air": "positive",
    "sea_surface_wave_significant_height": "positive",
    "relative_humidity": "bounded",
}


def _attribute(name: Any, unit: Any, gross: Any, usual: Any, *numbers: Any) -> Attribute:
    step, rate, spike, flat_s, mean, spread, length_km, noise, drift = map(float, numbers)
    return Attribute(
        name, unit, gross, usual, step, rate, spike, flat_s, mean, spread, 1000 * length_km, noise, drift,
        _FAMILY.get(name, "any"),
    )  # fmt: skip


KNOWN: dict[str, Attribute] = {str(row[0]): _attribute(*row) for row in _ROWS}
"""By CF standard name."""
