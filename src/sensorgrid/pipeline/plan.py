"""The plan of a lake: everything that a grid depends on beside the measurements, with the tick it holds from.

Halos, kernels and their parameters are learnt from the data, so they change. If each run made up its own, the
stream and a backfill could not agree. So they are written down: an entry is valid from a tick on that nobody
has published yet, is never changed again, and every run over the same lake reads the same entry for the same
tick. The executors read the plan at the beginning of each task, so that a change needs no restart.
"""

import json
from bisect import bisect_right
from dataclasses import asdict, dataclass, field, replace
from math import log
from typing import Any

from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.groups import Group, group_named
from sensorgrid.pipeline.gridding.kernels.interface import Parameters
from sensorgrid.pipeline.gridding.kernels.transforms import shown
from sensorgrid.pipeline.gridding.tile import Recipe
from sensorgrid.pipeline.ingest.attributes import KNOWN

FORMAT = 2
"""2: parameters count after a transform, and say which"""
_PLAIN = 1
"""the format before: no transform, and two numbers about errors instead of five; it is read, and written as 2"""


class PlanError(SensorGridError, ValueError):
    """A plan that does not fit: another format, another grid, an entry too late to hold."""


@dataclass(frozen=True, slots=True)
class HaloEntry:
    """Halos of a group from a tick on: sensors of temperature are denser than those of waves."""

    from_tick: int
    group: str
    width_m: tuple[float, ...]
    """of each region"""
    why: str
    """what they were chosen from, for people"""


@dataclass(frozen=True, slots=True)
class RecipeEntry:
    """The recipe of a group from a tick on."""

    from_tick: int
    group: str
    recipe: Recipe
    why: str
    """what it was chosen from, for people"""


@dataclass(frozen=True, slots=True)
class Plan:
    """All entries, each kind ordered by tick."""

    grid: Grid
    start_tick: int
    """the first tick that the stream publishes"""
    halos: tuple[HaloEntry, ...]
    recipes: tuple[RecipeEntry, ...] = field(default=())

    def halos_of(self, group: str) -> list[HaloEntry]:
        """The halos of a group, by the tick from which they hold."""
        return [h for h in self.halos if h.group == group]

    def halo(self, group: str, tick: int) -> HaloEntry:
        """The halos that are valid at `tick`; before the first entry, the first."""
        entries = self.halos_of(group)
        return entries[max(0, bisect_right([h.from_tick for h in entries], tick) - 1)]

    def recipe(self, group: Group, tick: int) -> Recipe:
        """The recipe that is valid at `tick`; before the first entry, the first."""
        entries = [e for e in self.recipes if e.group == group.name]
        if not entries:
            raise PlanError(
                f"plan: found no recipe for {group.name!r}, expected one for each group of the grid"
            )
        return entries[max(0, bisect_right([e.from_tick for e in entries], tick) - 1)].recipe

    def with_recipe(self, entry: RecipeEntry) -> "Plan":
        """The plan with one more recipe, which must be the newest of its group."""
        newer = [
            e.from_tick for e in self.recipes if e.group == entry.group and e.from_tick >= entry.from_tick
        ]
        if newer:
            raise PlanError(
                f"plan: found a recipe for {entry.group!r} from tick {newer[-1]} on, expected none from"
                f" {entry.from_tick} on: what is written may have been used"
            )
        return replace(self, recipes=(*self.recipes, entry))

    def with_halos(self, entry: HaloEntry) -> "Plan":
        """The plan with other halos from a later tick on."""
        known = self.halos_of(entry.group)
        if known and known[-1].from_tick >= entry.from_tick:
            raise PlanError(
                f"plan: found halos of {entry.group!r} from tick {known[-1].from_tick} on, expected none from"
                f" {entry.from_tick} on: what is written may have been used"
            )
        return replace(self, halos=(*self.halos, entry))

    def notes(self) -> list[str]:
        """What people should know: the newest recipe and halos of each group, and what they were chosen from."""
        notes = []
        for group, entry in {e.group: e for e in self.recipes}.items():
            halo = self.halos_of(group)[-1]
            widths = f"{_km(min(halo.width_m))} to {_km(max(halo.width_m))}"
            told = " and ".join(_told(p) for p in entry.recipe.parameters)
            notes.append(f"{group}: {entry.why}; {told}; halos of {widths} ({halo.why})")
        return notes

    def to_json(self) -> str:
        """As text, one entry a line where people may want to read it."""
        return json.dumps({"format": FORMAT} | asdict(self), indent=1) + "\n"


def _told(p: Parameters) -> str:
    """Parameters that people ask for; an error counts after the transform."""
    inside = f" of {space}" if (space := shown(p)) else ""
    return f"length {_km(p.length)}, noise of a reading {p.noise:.3g}{inside}"


def _km(metres: float) -> str:
    return f"{metres / 1000:,.0f} km" if metres >= 10_000 else f"{metres:,.0f} m"


def plan_from_json(text: str) -> Plan:
    """Read what `to_json` wrote."""
    found: dict[str, Any] = json.loads(text)
    if found.get("format") not in (_PLAIN, FORMAT):
        raise PlanError(
            f"plan: found format {found.get('format')}, expected {_PLAIN} or {FORMAT}; a newer sensorgrid may have"
            " written it: use that one, or a new lake"
        )
    if found["format"] == _PLAIN:
        found["recipes"] = [_of_before(entry) for entry in found["recipes"]]
    halos = tuple(
        HaloEntry(h["from_tick"], h["group"], tuple(h["width_m"]), h["why"]) for h in found["halos"]
    )
    recipes = tuple(
        RecipeEntry(e["from_tick"], e["group"], _recipe(e["recipe"]), e["why"]) for e in found["recipes"]
    )
    return Plan(_grid(found["grid"]), found["start_tick"], halos, recipes)


def _of_before(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of format 1 as it would be now: values as they are, within what is physical."""
    parameters = []
    for name, p in zip(group_named(entry["group"]).outputs, entry["recipe"]["parameters"], strict=True):
        known = KNOWN.get(name)
        lowest, highest = (None, None) if known is None else known.physical
        family = "unknown" if known is None else known.family
        kept = {k: v for k, v in p.items() if k not in ("error_scale", "local")}
        errors = (2 * log(max(p.get("error_scale", 1.0), 0.05)), p.get("local", 0.0), 0.0, 0.0, 0.0)
        parameters.append(kept | {"errors": errors, "lowest": lowest, "highest": highest, "family": family})
    recipe = {"kernel": entry["recipe"]["kernel"], "parameters": parameters}
    return entry | {"recipe": recipe, "why": f"{entry['why']}; of an earlier release, until the next fit"}


def _recipe(found: dict[str, Any]) -> Recipe:
    return Recipe(found["kernel"], tuple(Parameters(**_frozen(p)) for p in found["parameters"]))


def _grid(found: dict[str, Any]) -> Grid:
    return Grid(**_frozen(found))


def _frozen(found: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
