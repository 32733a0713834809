"""Every message survives the wire, and nothing but a message comes out of it."""

import struct

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import sayings
from sensorgrid.model.block import Slab
from sensorgrid.overlay import messages
from sensorgrid.overlay.codec import VERSION, CodecError, as_of, body_of, decode, decode_all, encode, head_of
from sensorgrid.overlay.messages import Feed, Leave

numbers = st.integers(0, 1 << 62)
cells = st.integers(1, (1 << 42) - 1)
ticks = st.integers(-(1 << 40), 1 << 40)


@st.composite
def slabs(draw: st.DrawFn) -> Slab:
    """Any values: also infinities, and blanks with bits of their own."""
    progressions = []
    for _ in range(2):
        start, stride = draw(st.integers(0, 100)), 1 << draw(st.integers(0, 4))
        progressions.append((start, start + draw(st.integers(1, 30)), stride))
    y, x = progressions
    shape = len(range(*y)), len(range(*x))
    dtype = draw(st.sampled_from(["<f4", "<f8"]))
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    raw = draw(st.binary(min_size=size, max_size=size))
    return Slab(y, x, np.frombuffer(raw, dtype=dtype).reshape(shape))


feeds = st.builds(
    Feed, numbers, cells, ticks, numbers, st.none() | st.lists(slabs(), max_size=3).map(tuple), ticks
)
plain = sayings.plain()


def frame(header: object, values: bytes = b"", version: int = VERSION) -> bytes:
    """A frame with any header whatever."""
    packed = msgspec.msgpack.encode(header)
    return struct.pack("<BI", version, len(packed)) + packed + values


@given(plain)
def test_a_message_comes_out_as_it_went_in(message: messages.Message) -> None:
    found = decode(encode(message))

    assert found == message
    assert type(found) is type(message)


@given(feeds, st.floats(0, 1e9) | st.just(float("inf")))
def test_a_block_that_rests_on_no_observation_says_so_and_others_are_no_longer_for_it(
    message: Feed, silent_s: float
) -> None:
    if not message.slabs:
        return
    silent = msgspec.structs.replace(
        message, slabs=tuple(Slab(s.y, s.x, s.values, silent_s) for s in message.slabs)
    )

    found = decode(encode(silent))
    older = as_of(silent, 2)

    assert {slab.silent_s for slab in found.slabs} == {silent_s}
    assert {slab.silent_s for slab in decode(encode(message)).slabs} == {None}
    assert encode(older) == encode(message)
    assert as_of(silent, 3) is silent
    header = msgspec.msgpack.decode(encode(message)[5 : 5 + struct.unpack_from("<I", encode(message), 1)[0]])
    assert len(header) == 8, "the tag and the seven fields of version 2"


@pytest.mark.parametrize("silent_s", [-1.0, float("nan")])
def test_a_silence_that_cannot_be_is_refused(silent_s: float) -> None:
    one = ((0, 1, 1), (0, 1, 1), "<f4")

    with pytest.raises(CodecError, match="found no message"):
        decode(frame(["Feed", 1, 5, 7, 0, [one], 0, 1, silent_s], bytes(4)))


@given(feeds)
def test_values_come_out_bit_by_bit(message: Feed) -> None:
    found = decode(encode(message))

    assert isinstance(found, Feed)
    assert (found.generation, found.cell, found.tick, found.revision, found.until) == (
        message.generation, message.cell, message.tick, message.revision, message.until,
    )  # fmt: skip
    if message.slabs is None:
        assert found.slabs is None
        return
    assert found.slabs is not None
    for mine, theirs in zip(message.slabs, found.slabs, strict=True):
        assert (mine.y, mine.x, mine.values.dtype) == (theirs.y, theirs.x, theirs.values.dtype)
        assert mine.values.tobytes() == theirs.values.tobytes()


@pytest.mark.parametrize("name", messages.known)
def test_a_message_is_told_by_the_name_of_its_class(name: str) -> None:
    """What is on the wire; a class that is renamed is another message to older brokers."""
    assert messages.known[name].__struct_config__.tag == messages.known[name].__name__ == name


@pytest.mark.parametrize(
    ("facts", "missing"),
    [({"dials": False}, "said_by"), ({"said_by": messages.ANYONE}, "dials"), ({}, "said_by")],
)
def test_a_message_that_does_not_say_who_says_it_and_whether_it_dials_is_none(
    facts: dict[str, object], missing: str
) -> None:
    with pytest.raises(TypeError, match=f"message Silent: .* expected {missing}"):
        type(messages.Message)("Silent", (messages.Message,), facts, frozen=True)

    assert "Silent" not in messages.known


def test_a_message_does_not_inherit_the_facts_of_another() -> None:
    with pytest.raises(TypeError, match="message Silent"):
        type(messages.Message)("Silent", (messages.Leave,), {}, frozen=True)


def test_a_name_means_one_message() -> None:
    facts = {"said_by": messages.ANYONE, "dials": False}

    with pytest.raises(TypeError, match="message Leave: found a second one"):
        type(messages.Message)("Leave", (messages.Message,), facts, frozen=True)


@given(st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_a_view_with_strides_travels_as_its_values(up: int, left: int, reverse: bool) -> None:
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    part = whole.T[up::2, left::3] if reverse else whole[up::2, left::3]
    y, x = (0, part.shape[0], 1), (0, part.shape[1], 1)

    found = decode(encode(Feed(1, 2, 3, 0, (Slab(y, x, part),))))

    assert isinstance(found, Feed)
    assert found.slabs is not None
    np.testing.assert_array_equal(found.slabs[0].values, part)


def test_values_of_the_other_byte_order_travel_as_little_endian() -> None:
    values = np.array([[1.0, 2.5]], dtype=">f8")

    found = decode(encode(Feed(1, 2, 3, 0, (Slab((0, 1, 1), (0, 2, 1), values),))))

    assert isinstance(found, Feed)
    assert found.slabs is not None
    np.testing.assert_array_equal(found.slabs[0].values, values)
    assert found.slabs[0].values.dtype == "<f8"


@given(st.one_of(plain, feeds), st.data())
def test_a_truncated_or_longer_frame_is_no_message(message: messages.Message, data: st.DataObject) -> None:
    whole = encode(message)
    length = data.draw(st.integers(0, len(whole) - 1))

    for damaged in (whole[:length], whole + b"\0", whole + whole):
        with pytest.raises(CodecError):
            decode(damaged)


@given(st.one_of(plain, feeds), st.integers(0, 255))
def test_a_frame_of_another_version_is_refused(message: messages.Message, version: int) -> None:
    whole = encode(message)

    if version == VERSION:
        assert encode(decode(whole)) == whole
    else:
        with pytest.raises(CodecError, match=f"found version {version}, expected {VERSION}"):
            decode(bytes([version]) + whole[1:])


def outcome(frame: bytes) -> type:
    """The kind of message that a frame is, or the error that says that it is none."""
    try:
        return type(decode(frame))
    except CodecError:
        return CodecError


def outcomes() -> set[type]:
    """An error, or any message; a test may have declared one of its own by now."""
    return {CodecError, *messages.known.values()}


@given(st.binary(max_size=60))
def test_garbage_is_a_codec_error_and_nothing_else(garbage: bytes) -> None:
    for damaged in (garbage, bytes([VERSION]) + garbage, struct.pack("<BI", 1, len(garbage)) + garbage):
        assert outcome(damaged) in outcomes()


@given(
    st.one_of(plain, feeds), st.lists(st.tuples(st.integers(0), st.integers(1, 255)), min_size=1, max_size=4)
)
def test_flipped_bits_are_a_codec_error_or_another_message(
    message: messages.Message, flips: list[tuple[int, int]]
) -> None:
    damaged = bytearray(encode(message))
    for place, bits in flips:
        damaged[place % len(damaged)] ^= bits

    assert outcome(bytes(damaged)) in outcomes()


wild = st.integers(-(1 << 63), (1 << 64) - 1)


@given(
    st.lists(
        st.tuples(*[st.tuples(wild, wild, wild)] * 2, st.sampled_from(["<f4", "<f8", ">f4", "O"])), max_size=2
    )
)
@example([((0, (1 << 64) - 1, 1), (0, 1, 1), "<f4")])
@example([((0, (1 << 62), 1), (5, 1, 1), "<f8")])
@example([((0, (1 << 40), 1), (0, (1 << 40), 1), "<f8")])
@example([((0, 0, 1), (0, 0, 1), "<f4")])
def test_a_header_that_lies_about_its_values_is_a_codec_error(described: list[object]) -> None:
    for values in (b"", b"\0" * 8):
        try:
            found = decode(frame(["Feed", 1, 2, 3, 0, described, 0], values))
        except CodecError:
            continue
        assert isinstance(found, Feed)
        assert all(slab.points > 0 for slab in found.slabs or ())


@pytest.mark.parametrize(
    "header",
    [
        None, 7, [], ["Shout", 1], ["Leave"], ["Leave", 1, [-5]], ["Leave", 1, [0]], ["Leave", 1.5, [1]],
        ["Ask", 1, 0, [-1], False], ["Want", 1, 0, [[-9, 1, 0]]], ["Offer", 1, 0, -3, 5], ["Leave", "1", [2]],
        ["Redirect", 1, [[2, -2]], 0], ["Find", 1, 1, 0, [-2], False, []], {"Leave": 1},
        ["Feed", 1, 2, 3, 0, [[[0, 1, 0], [0, 1, 1], "<f4"]], 0],
    ],
    ids=repr,
)  # fmt: skip
def test_what_makes_no_sense_is_refused_before_anybody_acts_on_it(header: object) -> None:
    """A negative code, for one, has no end of prefixes: a broker would count them for ever."""
    with pytest.raises(CodecError):
        decode(frame(header, b"\0" * 4 if "Feed" in str(header) else b""))


def test_what_was_added_behind_a_known_message_is_ignored() -> None:
    """Structs as arrays may grow at their end: an older broker reads what it knows."""
    assert decode(frame(["Leave", 3, [5, 6], "more"])) == Leave(3, (5, 6))


@given(st.lists(plain, min_size=1, max_size=5), st.none() | feeds)
def test_messages_that_follow_each_other_come_out_in_order(
    several: list[messages.Message], last: Feed | None
) -> None:
    together = [*several] if last is None else [*several, last]
    frame = b"".join(map(encode, together))

    found = decode_all(frame)

    assert [encode(m) for m in found] == [encode(m) for m in together]


@given(feeds.filter(lambda feed: feed.slabs))
def test_compressed_values_come_out_as_they_went_in(feed: Feed) -> None:
    assert feed.slabs is not None
    frame = head_of(feed, packed=True) + body_of(feed.slabs)[::-1]

    (found,) = decode_all(frame, unpack=lambda data, size: data[::-1])

    assert encode(found) == encode(feed)
    with pytest.raises(CodecError, match="found version 129"):
        decode_all(frame)
