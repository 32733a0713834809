"""Messages that could come from anywhere: of the right form, and perhaps without any sense."""

from typing import Any

from hypothesis import strategies as st

import sayings
from hands import EVERYTHING, client
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay import messages
from sensorgrid.overlay.messages import Clip, Feed

codes = st.one_of(st.integers(1, 127), st.sampled_from([8, 9, 10, 11, 16, 17]), st.integers(1, (1 << 43) - 1))
few = st.integers(0, 3)
peers = st.sampled_from([0, 1, 2, 3, 4, client(0), client(1), client(2)]).map(PeerId)
paths = st.lists(peers, max_size=3).map(tuple)
cells = st.lists(codes, max_size=3).map(tuple)
numbers = st.one_of(st.integers(-2, 130), st.integers(-(1 << 60), 1 << 60))
ticks = st.integers(-5, 60)
clips = st.one_of(
    st.none(),
    st.just(EVERYTHING),
    st.builds(Clip, st.tuples(*[st.integers(-1, 20)] * 4), st.tuples(*[st.integers(-1, 4)] * 3)),
)
located = st.lists(st.tuples(codes, st.none() | peers), max_size=3).map(tuple)
wants = st.lists(st.tuples(codes, st.sampled_from([64, 32, 16, 128, 1]), ticks), max_size=3).map(tuple)
delays = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats())
views = st.lists(st.tuples(peers, delays, st.none() | numbers, delays), max_size=4).map(tuple)
shifts = st.lists(st.tuples(peers, st.none() | delays, st.none() | numbers), max_size=4).map(tuple)

fields: dict[type[messages.Message], tuple[st.SearchStrategy[Any], ...]] = {
    messages.Want: (few, few, wants, clips, st.none() | ticks, st.none() | peers, st.booleans()),
    messages.Leave: (few, cells),
    messages.Grant: (few, cells, st.none() | paths),
    messages.Refuse: (few, cells, st.sampled_from(["no", messages.NO_ROOM.text]), paths, cells),
    messages.Redirect: (few, st.lists(st.tuples(codes, codes), max_size=2).map(tuple), peers),
    Feed: (few, codes, ticks, few, st.none() | st.just(()), ticks),
    messages.Ask: (few, few, cells, st.booleans()),
    messages.Find: (peers, few, few, cells, st.booleans(), paths),
    messages.Found: (peers, few, few, located, paths),
    messages.Located: (few, few, located),
    messages.Offer: (few, few, codes, numbers, st.none() | peers),
    messages.Answer: (few, numbers),
    messages.Moving: (few, numbers),
    messages.News: (
        st.lists(
            st.tuples(peers, few, numbers, st.lists(st.tuples(few, codes), max_size=2).map(tuple)), max_size=2
        ).map(tuple),
    ),
    messages.Ping: (delays,),
    messages.Pong: (delays, views),
    messages.Shifted: (shifts,),
    messages.Joined: (st.lists(st.tuples(numbers | few, codes, st.none() | peers), max_size=3).map(tuple),),
    messages.Steer: (st.lists(st.tuples(few, codes, peers, peers), max_size=3).map(tuple),),
    messages.Alive: (st.booleans(),),
}
"""of values that mean something here"""

anything = st.deferred(
    lambda: st.one_of(
        *(
            st.builds(kind, *fields[kind]) if kind in fields else sayings.of_kind(kind)
            for kind in messages.known.values()
        )
    )
)
"""a message of any kind"""
