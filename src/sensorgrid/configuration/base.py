"""Reading a configuration: one TOML file, overridden by the environment, checked once, at the start.

``SENSORGRID_SPARK__MASTER=spark://host:7077`` overrides ``master`` of ``[spark]``; two underscores go one level
down. Secrets stand in the environment only: the file names the variable. Relative paths are relative to the file.
"""

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.model.spelling import nearest

_UNITS = {"us": 1e-6, "ms": 1e-3, "": 1, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}


class SettingsError(SensorGridError, ValueError):
    """A configuration that cannot be right; names the file and the key."""


def seconds(value: Any) -> float:
    """A duration: a number of seconds, or a text such as 90s, 10min, 2h, 7d."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", str(value))
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"found {value!r}, expected a duration such as 90s, 10min, 2h or 7d")
    return float(found[1]) * _UNITS[found[2]]


Duration = Annotated[float, BeforeValidator(seconds), Field(ge=0)]


class Strict(BaseModel):
    """A table of the file: keys that are not known are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FileSettings(BaseSettings):
    """A whole file; the environment wins over it."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file."""
        return env_settings, init_settings


class GridSettings(Strict):
    """``[grid]``: the world; see `sensorgrid.Grid`."""

    extent: tuple[float, float, float, float] = (-180.0, -90.0, 180.0, 90.0)
    """west, south, east, north"""
    shape: tuple[int, int] = (512, 256)
    """points along x and y, powers of two; each in the middle of its area"""
    tick: Duration = 600.0
    """from one grid to the next"""
    resolution_bits: int | tuple[int, int, int] = 4
    """how often resolution can be halved, along x, y and time"""
    coordinates: Literal["lonlat", "planar"] = "lonlat"
    """planar: x and y in metres"""
    attributes: tuple[str, ...] = ("air_temperature",)
    """what the grid carries, by CF standard names; wind as eastward_wind and northward_wind"""
    region_digits: int = 4
    """the grid is cut into 2 to the power of so many regions, which are gridded and owned one by one"""

    def grid(self) -> Grid:
        """The grid."""
        found: dict[str, Any] = self.model_dump()
        return Grid(**found)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The content of a file."""
    try:
        return tomllib.loads(Path(path).read_text())
    except (FileNotFoundError, IsADirectoryError):
        raise SettingsError(f"{path}: found no such file, expected a configuration in TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: found no TOML ({error}), expected a configuration in TOML") from None


def faults_of(error: ValidationError, model: type[BaseModel]) -> str:
    """All that is wrong with a file, each with its key, what was found and what was expected."""
    return "; ".join(
        f"{'.'.join(str(p) for p in e['loc']) or 'file'}: {_found(e, model)}" for e in error.errors()
    )


def absolute(text: str, folder: Path) -> str:
    """A path of the file made absolute; a URI stays as it is."""
    return text if "://" in text else os.path.abspath(folder / text)


def _found(error: Any, model: type[BaseModel]) -> str:
    """What was found; not the value of a key that is not known, which may be a secret."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        *table, key = error["loc"]
        return "found a key that is not known, expected " + nearest(str(key), keys_of(model, table))
    if kind == "missing":
        return "found nothing, expected this key"
    if kind == "union_tag_invalid":
        tags = [tag.strip(" '") for tag in context["expected_tags"].split(",")]
        key = context["discriminator"].strip("'")
        return f"found {key} = {context['tag']!r}, expected {nearest(context['tag'], tags)}"
    if kind == "union_tag_not_found":
        return f"found no {context['discriminator']}, expected this key"
    if error["msg"].startswith("Value error, "):  # ours: says what was found
        return str(error["msg"].removeprefix("Value error, "))
    return f"found {error['input']!r}, {error['msg']}"


def keys_of(model: type[BaseModel], table: list[Any]) -> set[str]:
    """The keys of a table of a file, such as ["sources", 0, "files"], where "files" tells which kind of source."""
    models = [model]
    for part in table:
        inner = [
            m
            for one in models
            if part in one.model_fields
            for m in _models(one.model_fields[part].annotation)
        ]
        kinds = [one for one in models if _kind(one) == part]
        models = inner or kinds or models
    return {name for one in models for name in one.model_fields}


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _kind(model: type[BaseModel]) -> Any:
    field = model.model_fields.get("kind")
    return next(iter(get_args(field.annotation)), None) if field is not None else None
