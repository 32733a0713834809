"""What people call the attributes, and their canonical units (CF standard name table).

The pipeline knows more of each (`sensorgrid.pipeline.ingest.attributes`); a test holds the units together.
"""

UNITS: dict[str, str] = {
    "air_temperature": "K",
    "dew_point_temperature": "K",
    "air_pressure_at_mean_sea_level": "Pa",
    "relative_humidity": "1",
    "wind_speed": "m s-1",
    "wind_from_direction": "degree",
    "eastward_wind": "m s-1",
    "northward_wind": "m s-1",
    "precipitation_amount": "kg m-2",
    "sea_surface_temperature": "K",
    "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air": "kg m-3",
    "sea_surface_wave_significant_height": "m",
}
"""by CF standard name, in UDUNITS spelling"""

ERROR = " standard_error"
"""behind a name: the standard error of its values (CF's modifier); travels as an attribute of its own"""


def long_name(attribute: str) -> str:
    """A name for people.

    >>> long_name("air_temperature standard_error")
    'standard error of air temperature'
    """
    name, error = attribute.removesuffix(ERROR), attribute.endswith(ERROR)
    words = name.replace("_", " ").replace("pm2p5", "PM2.5")
    return f"standard error of {words}" if error else words
