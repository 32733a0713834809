"""From an expression to its normal form; units, areas, windows and kinds are checked here."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isclose, isfinite

from sensorgrid.model.errors import QueryError
from sensorgrid.model.grid import Grid
from sensorgrid.model.names import UNITS
from sensorgrid.model.query import length_of_time
from sensorgrid.model.spelling import nearest
from sensorgrid.model.units import UNITS as SPELLINGS
from sensorgrid.model.units import canonical_of, conversion
from sensorgrid.operators import exact
from sensorgrid.operators.areas import Area, AreaError
from sensorgrid.operators.correlation import LENGTHS_M
from sensorgrid.operators.errors import ExpressionError, at
from sensorgrid.operators.expression import Expression
from sensorgrid.operators.nodes import Computed, Fixed, Held, Lag, Node, TermSample, computed
from sensorgrid.operators.partials.percentiles import BINS, SMALL
from sensorgrid.operators.term import Term
from sensorgrid.operators.weights import clip

WINDOW_MAX = 48
"""ticks that an operator may look back, this one included: brokers keep few more"""
DIRECTION = "wind_from_direction"
PER_HOUR = " h-1"
"""behind a unit: of a rate"""
_WIND = ("eastward_wind", "northward_wind")
_COMPARISONS = {"=", "<>", "<", "<=", ">", ">="}
_OVER_AREA = ("mean", "sum", "count", "min", "max", "std", "percentile")


@dataclass(frozen=True, slots=True)
class Unit:
    """What a number counts in."""

    name: str | None
    """canonical unit; None: anything goes with it"""
    is_difference: bool = False
    """of two values: 1 K is then 1 degC"""
    of: str = ""
    """the attribute, for messages"""


ANY = Unit(None)
TRUTH = Unit("condition")


@dataclass(frozen=True, slots=True)
class Meant:
    """A node, and what it counts in."""

    node: Node
    unit: Unit
    place: int
    quantity: tuple[float, str] | None = None
    """number and unit as written, where the other side decides what the unit means"""


def attributes_of(grid: Grid) -> dict[str, str]:
    """What expressions on a grid can name, with units; the direction of the wind is made of its components."""
    found = {name: UNITS.get(name, "") for name in grid.attributes}
    if set(_WIND) <= set(found):
        found.setdefault(DIRECTION, "degree")
    return found


class Compiler:
    """Finds what expressions mean on a grid."""

    def __init__(
        self,
        grid: Grid,
        areas: Mapping[str, Area],
        lengths_m: Mapping[str, float] | None = None,
        window_max: int = WINDOW_MAX,
    ) -> None:
        self.grid, self.areas, self.window_max = grid, areas, window_max
        self.lengths_m = LENGTHS_M if lengths_m is None else lengths_m
        self.attributes = attributes_of(grid)

    def number_or_condition(self, found: Expression) -> Meant:
        """Any expression that has a term in it."""
        meant = self._settled(self.meant(found))
        if not _has_sample(meant.node):
            raise _at(found, "found no attribute, expected one, as in mean(air_temperature)")
        if meant.node.window > self.window_max:
            raise self._too_long(found, meant.node.window)
        return meant

    def condition(self, found: Expression) -> Node:
        """An expression that is true or not."""
        meant = self.number_or_condition(found)
        if meant.unit is not TRUTH:
            raise _at(found, "found a number, expected a condition such as mean(air_temperature) > 300")
        return meant.node

    def meant(self, found: Expression) -> Meant:
        """Any part of an expression."""
        if found.kind == "number":
            return Meant(Fixed(_float(found)), ANY, found.place)
        if found.kind == "truth":
            return Meant(Fixed(float(bool(found.value))), TRUTH, found.place)
        if found.kind == "call":
            return self._call(found)
        if found.kind == "operation":
            return self._operation(found)
        if found.kind == "attribute":
            raise _at(
                found, f"found {found.value} outside a function, expected mean({found.value}) or another one"
            )
        what = {"text": repr(found.value), "area": "an area", "list": "a list"}[found.kind]
        raise _at(found, f"found {what}, expected a number or a function")

    # functions

    def _call(self, found: Expression) -> Meant:
        name = str(found.value)
        if name == "q":
            return self._quantity(found)
        if name == "hold":
            return self._hold(found)
        if name in ("difference", "rate"):
            return self._change(found)
        return self._over_area(found)

    def _quantity(self, found: Expression) -> Meant:
        if [part.kind for part in found.parts] != ["number", "text"]:
            raise _at(found, "found other arguments, expected a number and a unit: q(38, 'degC')")
        number, unit = found.parts
        if canonical_of(str(unit.value)) is None:
            known = sorted({spelling for spellings in SPELLINGS.values() for spelling in spellings})
            raise _at(unit, f"found unit {unit.value!r}, expected {_few(str(unit.value), known)}")
        return Meant(Fixed(_float(number)), ANY, unit.place, (_float(number), str(unit.value)))

    def _over_area(self, found: Expression) -> Meant:
        function = str(found.value)
        if not found.parts or found.parts[0].kind != "attribute":
            place = found.parts[0] if found.parts else found
            raise _at(
                place,
                f"found no attribute, expected {function}(attribute, …): {nearest('', self.attributes)}",
            )
        attribute, rest = str(found.parts[0].value), list(found.parts[1:])
        share = self._share(found, rest) if function == "percentile" else None
        area, ticks = self._area_and_window(found, rest)
        unit = Unit(self.attributes[attribute] or None, False, attribute)
        if attribute == DIRECTION:
            return Meant(self._direction(found, function, area, ticks), unit, found.place)
        term = self._term(found, function, attribute, area, share, ticks)
        if function == "std":
            unit = Unit(unit.name, True, attribute)
        elif function in ("count", "sum"):
            unit = ANY
        return Meant(TermSample(term, ticks), unit, found.place)

    def _term(
        self,
        found: Expression,
        function: str,
        attribute: str,
        area: Area | None,
        share: float | None,
        ticks: int,
    ) -> Term:
        whole = clip(area, self.grid)
        if whole is None:
            place = next((p for p in found.parts if p.kind in ("text", "area")), found)
            raise _at(
                place,
                f"found an area that meets no point of the grid, expected one within {self.grid.extent}",
            )
        if whole.points * ticks > exact.ADDENDS_MAX:
            raise _at(found, f"found {whole.points * ticks:,} values, expected at most {exact.ADDENDS_MAX:,}")
        parameters: tuple[float | str, ...] = ()
        if share is not None:
            is_small = whole.points <= SMALL and ticks == 1
            if not is_small and attribute not in BINS:
                raise _at(
                    found,
                    f"found {whole.points:,} points and {ticks} ticks of {attribute}, whose precision is not known,"
                    f" expected at most {SMALL} points and one tick, or one of {', '.join(sorted(BINS))}",
                )
            parameters = (share, "exact" if is_small else "bins")
        return Term(function, attribute, area, parameters, self.grid, self.lengths_m.get(attribute))

    def _direction(self, found: Expression, function: str, area: Area | None, ticks: int) -> Node:
        """The mean direction is that of the mean vector."""
        if function == "count":
            name = DIRECTION if DIRECTION in self.grid.attributes else _WIND[0]
            return TermSample(self._term(found, "count", name, area, None, ticks), ticks)
        if function != "mean":
            raise _at(found, f"found {function} of a direction, expected mean or count")
        if DIRECTION in self.grid.attributes:
            return TermSample(self._term(found, "direction", DIRECTION, area, None, ticks), ticks)
        east, north = (
            TermSample(self._term(found, "mean", name, area, None, ticks), ticks) for name in _WIND
        )
        return Computed("direction", (east, north))

    def _share(self, found: Expression, rest: list[Expression]) -> float:
        if not rest or rest[0].kind != "number" or not 0 <= _float(rest[0]) <= 1:
            place = rest[0] if rest else found
            raise _at(place, "found no share, expected a number from 0 to 1: percentile(attribute, 0.9)")
        return _float(rest.pop(0))

    def _area_and_window(self, found: Expression, rest: list[Expression]) -> tuple[Area | None, int]:
        area: Area | None = None
        ticks: int | None = None
        for part in rest:
            if part.kind == "text" and is_duration(str(part.value)) and str(part.value) not in self.areas:
                if ticks is not None:
                    raise _at(part, "found a second window, expected one")
                ticks = self._ticks(part, whole=False)
            elif part.kind in ("text", "area"):
                if area is not None:
                    raise _at(part, "found a second area, expected one")
                area = part.value if isinstance(part.value, Area) else self._named(part)
            else:
                raise _at(
                    part, "found neither an area nor a window, expected 'A', BBOX(…), POLYGON(…) or '3h'"
                )
        return area, ticks or 1

    def _named(self, found: Expression) -> Area:
        try:
            return self.areas[str(found.value)]
        except AreaError as error:
            raise _at(found, str(error)) from None
        except KeyError:
            names = list(self.areas)
            expected = nearest(str(found.value), names) if names else "one of [areas], which names none"
            raise _at(found, f"found area {found.value!r}, expected {expected}") from None

    def _ticks(self, found: Expression, whole: bool) -> int:
        """A length of time in ticks."""
        try:
            seconds = length_of_time(str(found.value)).total_seconds()
        except QueryError as error:
            raise _at(found, str(error).replace("every: ", "")) from None
        ticks = seconds / self.grid.tick
        nearly = round(ticks)
        if isclose(ticks, nearly, rel_tol=1e-9):
            ticks = nearly
        elif whole:
            raise _at(
                found, f"found {found.value!r}, expected a multiple of the tick of {self.grid.tick:g} s"
            )
        if ticks > self.window_max:
            raise self._too_long(found, ceil(ticks))
        return ceil(ticks)

    def _too_long(self, found: Expression, ticks: int) -> ExpressionError:
        most = self.window_max * self.grid.tick
        return _at(
            found,
            f"found a window of {ticks:,} ticks, expected at most {self.window_max}, which are {most:g} s",
        )

    def _change(self, found: Expression) -> Meant:
        """Difference or rate: of a number, or of the mean of an attribute."""
        name = str(found.value)
        parts = list(found.parts)
        if len(parts) < 2 or parts[-1].kind != "text" or not is_duration(str(parts[-1].value)):
            raise _at(found, f"found no time, expected {name}(…, '1h')")
        ticks = self._ticks(parts[-1], whole=True)
        if parts[0].kind == "attribute":
            inner = Expression("call", "mean", tuple(parts[:-1]), found.place, found.text)
        elif len(parts) == 2:
            inner = parts[0]
        else:
            raise _at(parts[1], f"found a third argument, expected a number and a time: {name}(…, '1h')")
        meant = self._number(self.meant(inner), inner)
        node = computed("-", meant.node, Lag(meant.node, ticks))
        if meant.unit.of == DIRECTION:
            raise _at(inner, f"found {name} of a direction, expected another attribute")
        if name == "difference":
            return Meant(node, Unit(meant.unit.name, True, meant.unit.of), found.place)
        hours = ticks * self.grid.tick / 3600
        unit = Unit(meant.unit.name and meant.unit.name + PER_HOUR, True, meant.unit.of)
        return Meant(computed("/", node, Fixed(hours)), unit, found.place)

    def _hold(self, found: Expression) -> Meant:
        if len(found.parts) != 2 or found.parts[1].kind not in ("number", "text"):
            raise _at(found, "found other arguments, expected a condition and ticks, or a time: hold(…, 3)")
        condition, length = found.parts
        meant = self.meant(condition)
        if meant.unit is not TRUTH:
            raise _at(condition, "found a number, expected a condition such as mean(air_temperature) > 300")
        if length.kind == "text":
            return Meant(Held(meant.node, self._ticks(length, whole=False)), TRUTH, found.place)
        ticks = _float(length)
        if ticks < 1 or ticks != int(ticks):
            raise _at(length, f"found {ticks:g}, expected a whole number of ticks, 1 or more")
        if ticks > self.window_max:
            raise self._too_long(length, int(ticks))
        return Meant(Held(meant.node, int(ticks)), TRUTH, found.place)

    # operations

    def _operation(self, found: Expression) -> Meant:
        name = str(found.value)
        if name in ("and", "or", "not"):
            parts = [self._condition(part) for part in found.parts]
            return Meant(computed(name, *parts), TRUTH, found.place)
        if name == "in":
            return self._in(found)
        meant = [self._number(self.meant(part), part) for part in found.parts]
        if name == "between":
            value, low, high = self._alike(found, meant)
            node = computed(
                "and", computed("<=", low.node, value.node), computed("<=", value.node, high.node)
            )
            return Meant(node, TRUTH, found.place)
        if name in _COMPARISONS:
            left, right = self._alike(found, meant)
            return Meant(computed(name, left.node, right.node), TRUTH, found.place)
        if name in ("+", "-") and len(meant) == 2:
            return self._plus(found, name, meant)
        settled = [self._settled(part) for part in meant]
        if name == "/" and isinstance(settled[1].node, Fixed) and settled[1].node.value == 0:
            raise _at(found.parts[1], "found a division by 0, expected another number")
        # A number times or by a plain one keeps its unit; anything else has a unit that nobody checks.
        counted = [part for part in settled if part.unit.name is not None or not isinstance(part.node, Fixed)]
        keeps = len(counted) == 1 and (
            name in ("negative", "*") or (name == "/" and counted[0] is settled[0])
        )
        return Meant(_folded(found, name, settled), counted[0].unit if keeps else ANY, found.place)

    def _condition(self, found: Expression) -> Node:
        meant = self.meant(found)
        if meant.unit is not TRUTH:
            raise _at(found, "found a number, expected a condition such as mean(air_temperature) > 300")
        return meant.node

    def _number(self, meant: Meant, found: Expression) -> Meant:
        if meant.unit is TRUTH:
            raise _at(found, "found a condition, expected a number")
        return meant

    def _in(self, found: Expression) -> Meant:
        value, *rest = found.parts
        listed = rest[0].parts if len(rest) == 1 and rest[0].kind == "list" else tuple(rest)
        if not listed:
            raise _at(found, "found an empty list, expected numbers")
        meant = [self._number(self.meant(part), part) for part in (value, *listed)]
        first, *others = self._alike(found, meant)
        return Meant(computed("or", *(computed("=", first.node, o.node) for o in others)), TRUTH, found.place)

    def _plus(self, found: Expression, name: str, meant: list[Meant]) -> Meant:
        left, right = meant
        if name == "-" and right.quantity is not None and not left.unit.is_difference:
            self._check_offset(found, right, "taken from a value: a value itself, or a difference")
        if right.quantity is not None and left.quantity is None:
            right = self._resolved(found, right, Unit(left.unit.name, True, left.unit.of))
        elif left.quantity is not None and right.quantity is None:
            left = self._resolved(found, left, Unit(right.unit.name, name == "+", right.unit.of))
        left, right = self._settled(left), self._settled(right)
        self._check_units(found, [left, right])
        known = next((part.unit for part in (left, right) if part.unit.name is not None), ANY)
        both = left.unit.name is not None and right.unit.name is not None
        is_difference = both and (
            (name == "-" and left.unit.is_difference == right.unit.is_difference)
            or (left.unit.is_difference and right.unit.is_difference)
        )
        is_difference = is_difference or (not both and known.is_difference)
        return Meant(
            _folded(found, name, [left, right]), Unit(known.name, is_difference, known.of), found.place
        )

    def _alike(self, found: Expression, meant: list[Meant]) -> list[Meant]:
        """Parts that are compared, in one unit."""
        unit = next((m.unit for m in meant if m.unit.name is not None), None)
        if unit is None:
            for one in meant:
                if one.quantity is not None and not all(isinstance(m.node, Fixed) for m in meant):
                    self._check_offset(found, one, "beside a number whose unit is not known")
            return [self._settled(m) for m in meant]
        resolved = [self._resolved(found, m, unit) if m.quantity is not None else m for m in meant]
        self._check_units(found, resolved)
        return resolved

    def _check_offset(self, found: Expression, meant: Meant, what: str) -> None:
        """Refuse a unit whose zero matters where nobody knows whether it does."""
        assert meant.quantity is not None, "asked"
        canonical = canonical_of(meant.quantity[1]) or ""
        if (conversion(meant.quantity[1], canonical) or (1.0, 0.0))[1]:
            raise at(
                found.text,
                meant.place,
                f"found {meant.quantity[1]!r} {what}, expected a plain number in {canonical}",
            )

    def _check_units(self, found: Expression, meant: list[Meant]) -> None:
        known = [m for m in meant if m.unit.name is not None]
        for one in known[1:]:
            if one.unit.name != known[0].unit.name:
                first = known[0].unit
                raise at(
                    found.text, one.place,
                    f"found {one.unit.name} ({one.unit.of}), expected {first.name}, the unit of {first.of}",
                )  # fmt: skip

    def _resolved(self, found: Expression, meant: Meant, unit: Unit) -> Meant:
        """A quantity in the unit of the other side."""
        assert meant.quantity is not None, "asked"
        if unit.name is None:
            return self._settled(meant)
        number, spelling = meant.quantity
        base = unit.name.removesuffix(PER_HOUR)
        change = conversion(spelling, base)
        if change is None:
            fitting = list(SPELLINGS.get(base, {base: 0}))[:6]
            raise at(
                found.text, meant.place,
                f"found unit {spelling!r}, expected one of {unit.of or 'the other side'}: {', '.join(fitting)}, …",
            )  # fmt: skip
        scale, offset = change
        value = number * scale + (0.0 if unit.is_difference else offset)
        return Meant(Fixed(value), unit, meant.place)

    def _settled(self, meant: Meant) -> Meant:
        """A quantity that nothing decides stands in its canonical unit."""
        if meant.quantity is None:
            return meant
        number, spelling = meant.quantity
        canonical = canonical_of(spelling) or spelling
        scale, offset = conversion(spelling, canonical) or (1.0, 0.0)
        return Meant(Fixed(number * scale + offset), Unit(canonical, False, repr(spelling)), meant.place)


def is_duration(text: str) -> bool:
    """Whether a text is a length of time, such as 3h."""
    try:
        length_of_time(text)
    except QueryError:
        return False
    return text.strip()[:1].isdigit()


def _folded(found: Expression, name: str, parts: list[Meant]) -> Node:
    """An operation; of numbers that are known, its result."""
    nodes = [part.node for part in parts]
    if not all(isinstance(node, Fixed) for node in nodes):
        return computed(name, *nodes)
    from sensorgrid.operators.evaluation import fixed_result

    value = fixed_result(computed(name, *nodes))
    if not isfinite(value):
        raise _at(found, "found arithmetic without a finite result, expected one")
    return Fixed(value)


def _has_sample(node: Node) -> bool:
    return isinstance(node, TermSample) or any(_has_sample(part) for part in node.parts)


def _float(found: Expression) -> float:
    assert isinstance(found.value, float), "a number"
    return found.value


def _few(found: str, known: list[str]) -> str:
    near = nearest(found, known)
    return near if near.endswith("perhaps") else "one such as degC, hPa, mm, m/s, ug/m3"


def _at(found: Expression, message: str) -> ExpressionError:
    return at(found.text, found.place, message)
