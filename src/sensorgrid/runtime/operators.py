"""Operators that have a name: a JSON file each, in the folder `operators` beside the lake.

A name is for people. It is calculated while somebody watches it, like any other operator.
"""

import re
from typing import Any

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import ObjectStore

from sensorgrid.model.errors import SensorGridError
from sensorgrid.operators.plan import Operator
from sensorgrid.runtime.rosters import StoreError, opened

FOLDER = "operators"
NAMES = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class OperatorNameError(SensorGridError, ValueError):
    """A name that cannot be given, or is not there."""


class OperatorBook:
    """Of one grid; `lake` is the folder or URI of its lake.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as lake:
    ...     book = OperatorBook(lake)
    ...     book.add(Operator("mean(air_temperature)", name="warmth"))
    ...     list(book.all()), book.remove("warmth"), list(book.all())
    (['warmth'], None, [])
    """

    def __init__(self, lake: str) -> None:
        self.place = f"{lake.rstrip('/')}/{FOLDER}"

    def add(self, operator: Operator) -> None:
        """Keep one, under its name."""
        name = str(operator.name)
        if not NAMES.fullmatch(name):
            raise OperatorNameError(
                f"operator: found the name {name!r}, expected up to 64 letters, digits, dots, dashes and underscores"
            )
        every = operator.every
        content = {
            "value": operator.value, "when": operator.when, "until": operator.until,
            "every": None if every is None else every.total_seconds(),  # type: ignore[union-attr]
        }  # fmt: skip
        try:
            obstore.put(
                opened(self.place, make=True), f"{name}.json", msgspec.json.encode(content), mode="create"
            )
        except AlreadyExistsError:
            raise OperatorNameError(
                f"operator {name!r}: found one with this name, expected a new name; remove it first"
            ) from None
        except Exception as error:  # of as many kinds as there are stores
            raise StoreError(f"{self.place}: found {error}, expected to write there") from error

    def all(self) -> dict[str, Operator]:
        """All of them, by name."""
        try:
            store = opened(self.place, make=False)
        except FileNotFoundError:
            return {}
        names = sorted(str(found["path"]) for several in obstore.list(store) for found in several)
        return {name[:-5]: self._read(store, name) for name in names if name.endswith(".json")}

    def get(self, name: str) -> Operator | None:
        """One of them; None if there is none of this name."""
        return self.all().get(name) if NAMES.fullmatch(name) else None

    def remove(self, name: str) -> None:
        """Forget one."""
        known = self.all()
        if name not in known:
            there = ", ".join(known) or "none"
            raise OperatorNameError(f"operator: found no {name!r}, expected one of: {there}")
        obstore.delete(opened(self.place, make=False), f"{name}.json")

    def _read(self, store: ObjectStore, path: str) -> Operator:
        try:
            content: dict[str, Any] = msgspec.json.decode(bytes(obstore.get(store, path).bytes()), type=dict)
            return Operator(
                content["value"],
                content["when"],
                content["until"],
                content["every"],
                path.removesuffix(".json"),
            )
        except (msgspec.DecodeError, KeyError, SensorGridError) as error:
            raise StoreError(f"{self.place}/{path}: found {error}, expected an operator") from error
