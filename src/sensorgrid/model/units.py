"""Units of the world, and how each becomes the canonical unit of its attribute (CF).

A conversion is ``canonical = value * scale + offset``. The table is per canonical unit and not per spelling,
because the same spelling means different things: "mm" is a depth of rain (kg m-2) for one attribute and a
length for another, "C" and "F" are temperatures here. Spellings are matched as they are written, after
trimming; capitals carry meaning ("mPa" is not "MPa"), so each capital variant that occurs in real feeds is
listed.
"""

from collections.abc import Iterable, Mapping

Conversion = tuple[float, float]
"""scale, offset"""

_INCH_HG = 3386.389
_KNOT = 1852 / 3600
_MILE = 1609.344
_DEGREE_PER_RADIAN = 57.29577951308232
_F = (5 / 9, 459.67 * 5 / 9)


def _spelled(entries: Iterable[tuple[str, float, float]]) -> dict[str, Conversion]:
    """One entry per spelling, from lines of spellings separated by bars."""
    return {name: (scale, offset) for names, scale, offset in entries for name in names.split("|")}


UNITS: Mapping[str, Mapping[str, Conversion]] = {
    "K": _spelled(
        [
            ("K|kelvin|Kelvin|degK|deg_K", 1, 0),
            ("degC|°C|ºC|℃|C|celsius|Celsius|deg_C|degrees_celsius|degree_Celsius|degree_celsius", 1, 273.15),
            ("degF|°F|ºF|℉|F|fahrenheit|Fahrenheit|deg_F|degree_Fahrenheit|degree_fahrenheit", *_F),
        ]
    ),
    "Pa": _spelled(
        [
            ("Pa|pascal|Pascal|N m-2", 1, 0),
            ("hPa|HPA|hectopascal|mbar|mb|MB|millibar", 100, 0),
            ("kPa|kilopascal", 1000, 0),
            ("bar", 1e5, 0),
            ("inHg|in_Hg|inch_Hg|in Hg", _INCH_HG, 0),
            ("mmHg|mm_Hg|torr|Torr", 133.322387415, 0),
            ("atm", 101325, 0),
        ]
    ),
    "m s-1": _spelled(
        [
            ("m s-1|m/s|m.s-1|m s^-1|m·s-1|m s⁻¹|mps|MPS|meter/second|metre/second", 1, 0),
            ("kt|kts|kn|knot|knots|KT|Kt", _KNOT, 0),
            ("km/h|km h-1|kmh|kph|km/hr|KMH|km·h-1", 1 / 3.6, 0),
            ("mph|MPH|mi/h|mile/hour", _MILE / 3600, 0),
            ("ft/s|ft s-1|fps", 0.3048, 0),
            ("cm/s|cm s-1", 0.01, 0),
        ]
    ),
    "1": _spelled(
        [
            ("1|fraction|ratio|kg kg-1", 1, 0),
            ("%|percent|Percent|%RH|% RH|pct", 0.01, 0),
            ("‰|permille", 0.001, 0),
        ]
    ),
    "degree": _spelled(
        [
            ("degree|degrees|deg|°|º|degree_true|degrees_true|deg true", 1, 0),
            ("rad|radian|radians", _DEGREE_PER_RADIAN, 0),
        ]
    ),
    # Before the depth of rain: without an attribute that says rain, millimetres are a length.
    "m": _spelled(
        [
            ("m|meter|metre|meters|metres", 1, 0),
            ("cm|centimeter|centimetre", 0.01, 0),
            ("mm|millimeter|millimetre", 0.001, 0),
            ("km|kilometer|kilometre", 1000, 0),
            ("ft|foot|feet|FT", 0.3048, 0),
            ("in|inch|inches", 0.0254, 0),
            ("mi|mile|statute_mile|miles", _MILE, 0),
            ("nmi|nautical_mile", 1852, 0),
        ]
    ),
    "kg m-2": _spelled(
        [
            ("kg m-2|kg/m2|kg/m^2|kg/m²|kg m^-2|mm|millimeter|millimetre|l/m2|L/m2|l/m²|L/m²", 1, 0),
            ("cm", 10, 0),
            ("m", 1000, 0),
            ("in|inch|inches", 25.4, 0),
        ]
    ),
    "kg m-3": _spelled(
        [
            ("kg m-3|kg/m3|kg/m^3|kg/m³", 1, 0),
            ("g m-3|g/m3|g/m^3|g/m³", 1e-3, 0),
            ("mg m-3|mg/m3|mg/m^3|mg/m³", 1e-6, 0),
            # The micro sign (U+00B5) and the Greek letter (U+03BC) look alike; both are in use.
            ("ug m-3|ug/m3|ug/m^3|UG/M3|ug/m³|µg/m3|µg/m³|µg m-3|µg/m^3|μg/m3|μg/m³|μg m-3|µg m⁻³", 1e-9, 0),
            ("ng m-3|ng/m3|ng/m^3|ng/m³", 1e-12, 0),
        ]
    ),
}
"""canonical unit → spelling → (scale, offset)"""


CUSTOMARY: Mapping[str, tuple[str, float, float]] = {
    "K": ("°C", 1.0, -273.15),
    "Pa": ("hPa", 0.01, 0.0),
    "kg m-3": ("µg m⁻³", 1e9, 0.0),
    "kg m-2": ("mm", 1.0, 0.0),
    "m s-1": ("m s⁻¹", 1.0, 0.0),
    "1": ("%", 100.0, 0.0),
    "degree": ("°", 1.0, 0.0),
    "m": ("m", 1.0, 0.0),
}
"""canonical unit → how people write it, and ``customary = value * scale + offset``: for pictures, never for data"""


def conversion(unit: str, canonical: str) -> Conversion | None:
    """Scale and offset from a spelling to a canonical unit; None if the one does not measure the other.

    Examples
    --------
    >>> scale, offset = conversion("degF", "K")
    >>> round(32 * scale + offset, 6)
    273.15
    >>> conversion("hPa", "K") is None
    True
    """
    if unit == canonical:
        return 1.0, 0.0
    return UNITS.get(canonical, {}).get(unit)


def canonical_of(unit: str) -> str | None:
    """The canonical unit that a spelling leads to where the attribute does not decide it: the first that
    fits.

    Examples
    --------
    >>> canonical_of("ug/m3")
    'kg m-3'
    """
    return next((canonical for canonical, spellings in UNITS.items() if unit in spellings), None)
