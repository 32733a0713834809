"""Any message of any kind that is known, made from what its class says of its fields: a new kind is tried unasked."""

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from sensorgrid.overlay import messages
from sensorgrid.overlay.messages import Feed, Message

LARGEST = (1 << 63) - 1


def plain() -> st.SearchStrategy[Message]:
    """All kinds but `Feed`, whose values are no part of its header."""
    return st.deferred(
        lambda: st.one_of(*(of_kind(kind) for kind in messages.known.values() if kind is not Feed))
    )


def of_kind(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Any message of a kind that its own bounds allow."""
    fields = inspect.type_info(kind).fields  # type: ignore[attr-defined]
    return st.builds(kind, *(_values(field.type) for field in fields))


def _values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.IntType():
            return st.integers(
                -LARGEST if kind.ge is None else kind.ge, LARGEST if kind.le is None else kind.le
            )
        case inspect.FloatType():
            return st.floats(allow_nan=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.StrType():
            return st.text(max_size=20)
        case inspect.BytesType():
            return st.binary(max_size=20)
        case inspect.NoneType():
            return st.none()
        case inspect.UnionType():
            return st.one_of(*map(_values, kind.types))
        case inspect.TupleType():
            return st.tuples(*map(_values, kind.item_types))
        case inspect.VarTupleType():
            return st.lists(_values(kind.item_type), max_size=4).map(tuple)
        case inspect.StructType():
            return of_kind(kind.cls)
    raise TypeError(f"field: found {kind}, expected what messages are made of so far")
