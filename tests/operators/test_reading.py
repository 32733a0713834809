"""What is said of expressions that cannot be right: the place, what was found, what was expected."""

import time

import pytest

from operator_worlds import AREAS, GRID
from sensorgrid.operators.errors import ExpressionError
from sensorgrid.operators.plan import Operator, compile

T = "mean(air_temperature)"


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("mean(air_temprature) > 3", "air_temprature", "expected air_temperature, perhaps"),
        ("meen(air_temperature)", "meen", "expected mean, perhaps"),
        ("mean(air_temperature, 'C')", "'C'", "expected one of A, B, dot"),
        (f"{T} > q(3, 'hPa')", "'hPa'", "expected one of air_temperature: K"),
        (f"{T} > q(3, 'dgeC')", "'dgeC'", "expected degC, perhaps"),
        (f"{T} + mean(precipitation_amount)", "mean(prec", "found kg m-2 (precipitation_amount), expected K"),
        (f"{T} > 1e400", "1e400", "no finite number"),
        (f"{T} / 0", "0", "a division by 0"),
        (f"{T} / (2 - 2)", "2 - 2", "a division by 0"),
        ("mean(air_temperature, '30d')", "'30d'", "a window of 4,320 ticks, expected at most 48"),
        (f"rate(rate(rate({T}, '4h'), '3h'), '2h')", "rate(rate(rate", "a window of 55 ticks"),
        (f"rate({T}, '7min')", "'7min'", "a multiple of the tick of 600 s"),
        ("mean(air_temperature, BBOX(100, 0, 120, 20))", "BBOX", "meets no point of the grid"),
        ("mean(air_temperature, POLYGON((0 0, 1 1, 0 1, 1 0, 0 0)))", "POLYGON", "not simple"),
        ("mean(air_temperature, POINT(1 40))", "POINT", "found Point, expected a polygon"),
        ("air_temperature > 3", "air_temp", "outside a function"),
        ("1 + 2", "1", "found no attribute"),
        (f"{T} AND {T} > 1", "mean", "found a number, expected a condition"),
        (f"({T} > 1) + 1", "mean", "found a condition, expected a number"),
        (f"{T} >", "", "found the end"),
        (f"(({T})", "((mean", "found ( without )"),
        (f"{T})", ")", "found ) without ("),
        (f"{T} > 'x", "'x", "a text without an end"),
        ("mean(air_temperature, 'A', 'B')", "'B'", "a second area"),
        ("percentile(air_temperature, 90)", "90", "from 0 to 1"),
        ("hold(mean(air_temperature) > 1, 0.5)", "0.5", "a whole number of ticks"),
        ("max(wind_from_direction)", "max", "expected mean or count"),
        (f"mean({T})", "mean(air", "found no attribute, expected mean(attribute"),
        (f"{T} LIKE 'x'", "mean", "found function 'like'"),
        (f"{T} ; 3", ";", "found ';'"),
        (
            f"{T} - q(20, 'degC') > 1",
            "'degC'",
            "a value itself, or a difference, expected a plain number in K",
        ),
        (f"{T} * {T} > q(20, 'degC')", "'degC'", "beside a number whose unit is not known"),
        (f"rate({T}, '1h') > {T}", "mean(air_temperature)", "found K (air_temperature), expected K h-1"),
    ],
)
def test_the_caret_points_at_the_place(text: str, place: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile(text, GRID, AREAS)

    message, line, caret = str(caught.value).rsplit("\n", 2)
    assert said in message
    assert message.startswith("value: ")
    assert line.strip() == text.strip()
    at = line[caret.index("^") :]
    assert at.startswith(place)
    if place:
        assert (
            text.count(place) == 1
            or text.index(place) == caret.index("^") - 2
            or text.rindex(place) == caret.index("^") - 2
        )


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000, "NOT " * 100_000 + T, "-" * 5000 + T, "(" * 9000 + T + ")" * 9000, "((" * 11 + "a",
        " + ".join([T] * 1_000_000), " AND ".join([f"{T} > 1"] * 200), T + " < 1" * 2000, "f(" * 5000,
        "POLYGON" + "(" * 5000, "mean(air_temperature, POLYGON((" + "0 0," * 4000, "'" * 19_999, "\\'" * 9000,
    ],
    ids=range(13),
)  # fmt: skip
def test_what_is_too_long_or_too_deep_is_refused_at_once(text: str) -> None:
    begin = time.process_time()

    with pytest.raises(ExpressionError, match="found"):
        compile(text, GRID, AREAS)

    assert time.process_time() - begin < 5


def test_messages_name_the_part_of_the_operator() -> None:
    with pytest.raises(ExpressionError, match=r"^when: found attribute 'rain'"):
        compile(Operator(T, when="mean(rain) > 2"), GRID)
    with pytest.raises(ExpressionError, match=r"^until: found a number, expected a condition"):
        compile(Operator(T, when=f"{T} > 2", until=T), GRID)
    with pytest.raises(ExpressionError, match="found until without when"):
        Operator(T, until=f"{T} > 2")
    with pytest.raises(ExpressionError, match="every: found 700 s, expected a multiple"):
        compile(Operator(T, every=700), GRID)


def test_minus_signs_stay_with_what_they_stand_before() -> None:
    texts = [f"-{T}", f"-1 * {T}", f"0 - {T}"]

    plans = [compile(text, GRID) for text in texts]

    assert plans[0].digest == plans[1].digest != plans[2].digest
