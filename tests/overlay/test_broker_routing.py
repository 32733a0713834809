"""Questions for who feeds a cell: answered, cut, passed on, and answers brought home."""

import pytest

from hands import ANNA, BEN, LoneBroker, cell, sent
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.messages import Ask, Find, Found, Located


def test_a_question_is_answered_by_who_has_the_cell_and_passed_on_otherwise() -> None:
    broker = LoneBroker(others={"001": 1, "010": 2})
    broker.up(ANNA, 1, 2)

    effects = broker.say(ANNA, Ask(4, 0, (cell("0001"), cell("001"), cell("010"))))

    assert sent(effects, Located) == [Located(4, 0, ((cell("0001"), PeerId(0)),))]
    assert [(f.cells, f.trail) for f in sent(effects, Find, 1)] == [((cell("001"),), (0,))]
    assert [(f.cells, f.trail) for f in sent(effects, Find, 2)] == [((cell("010"),), (0,))]


def test_a_question_is_cut_where_regions_meet() -> None:
    """No part is nearest to two brokers at once."""
    broker = LoneBroker(others={"001": 1, "010": 2, "011": 2})
    broker.up(ANNA, 1, 2)

    effects = broker.say(ANNA, Ask(4, 0, (cell("0"),)))

    assert [m.items for m in sent(effects, Located)] == [((cell("000"), PeerId(0)),)]
    assert [f.cells for f in sent(effects, Find, 1)] == [(cell("001"),)]
    assert [f.cells for f in sent(effects, Find, 2)] == [(cell("010"), cell("011"))]


def test_an_answer_goes_back_along_the_trail() -> None:
    broker = LoneBroker(others={"001": 1})
    broker.up(ANNA, 1, 2)
    items = ((cell("001"), PeerId(1)),)

    home = broker.say(1, Found(ANNA, 4, 0, items, ()))
    onward = broker.say(1, Found(BEN, 4, 0, items, (PeerId(2),)))

    assert sent(home, Located, ANNA) == [Located(4, 0, items)]
    assert sent(onward, Found, 2) == [Found(BEN, 4, 0, items, ())]


@pytest.mark.parametrize("code", [cell("0" * 10), cell("1" * 42)])
def test_a_question_for_a_cell_that_the_grid_has_not_hurts_nobody(code: int) -> None:
    broker = LoneBroker(others={"001": 1})
    broker.up(ANNA)

    effects = broker.say(ANNA, Ask(4, 0, (code,)))

    assert [i for m in sent(effects, Located) for i in m.items] == [(code, None)]
