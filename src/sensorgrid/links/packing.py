"""Lossless compression of values on a connection: LZ4 after a byte shuffle, by blosc2 where it is installed."""

import struct

from sensorgrid.overlay.codec import CodecError

UNPACKED_BYTES_MAX = 256 << 20
_SIZE = struct.Struct("<I")
_INNER = _SIZE.size + 4
"""where the header of blosc2 repeats the size"""

try:
    import blosc2
except ImportError:
    blosc2 = None


def can_pack() -> bool:
    """Whether blosc2 is installed."""
    return blosc2 is not None


def pack(values: bytes) -> bytes:
    """Values, compressed; their size stands first."""
    packed: bytes = blosc2.compress2(
        values, typesize=4, codec=blosc2.Codec.LZ4, clevel=5, filters=[blosc2.Filter.SHUFFLE], nthreads=1
    )
    return _SIZE.pack(len(values)) + packed


def unpack(data: bytes, expected: int) -> bytes:
    """The values, exactly as many bytes as the header announced: no sender can make us allocate more."""
    if len(data) < _SIZE.size:
        raise CodecError(f"compressed values: found {len(data)} bytes, expected at least {_SIZE.size}")
    (size,) = _SIZE.unpack_from(data)
    if size != expected or size > UNPACKED_BYTES_MAX:
        at_most = min(expected, UNPACKED_BYTES_MAX)
        raise CodecError(f"compressed values: found {size} bytes, expected {at_most}")
    if data[_INNER : _INNER + 4] != data[: _SIZE.size]:  # before it allocates what its own header says
        raise CodecError("compressed values: found two sizes, expected one")
    try:
        values: bytes = blosc2.decompress2(data[_SIZE.size :])
    except (RuntimeError, ValueError, TypeError) as error:
        raise CodecError(f"compressed values: found none ({error}), expected some") from None
    if len(values) != size:
        raise CodecError(f"compressed values: found {len(values)} bytes, expected {size}")
    return values
