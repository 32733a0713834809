"""Bytes of a file, whatever its file system and compression, in bounded pieces.

Decompression is done here and not by a library's file object, because those lose what they had when a file
breaks off: everything before the fault must come out. Compression is known by the first bytes and not by the
name, which feeds get wrong.
"""

import bz2
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import fs

BLOCK_BYTES = 1 << 18
"""Read and handed out at once."""


def open_path(path: str) -> Any:
    """A file of Spark's naming (``file:/…``, ``s3a://…``) as a random-access pyarrow file."""
    if path.startswith("file:"):
        return fs.LocalFileSystem().open_input_file("/" + path.removeprefix("file:").lstrip("/"))
    if "://" not in path:
        return fs.LocalFileSystem().open_input_file(path)
    # Spark speaks of s3a and s3n where everybody else says s3.
    system, inner = fs.FileSystem.from_uri("s3://" + path[6:] if path[:6] in ("s3a://", "s3n://") else path)
    return system.open_input_file(inner)


def decompressed(stream: Any) -> Iterator[bytes]:
    """The content of a file in blocks: gzip, bzip2, Zstandard or plain.

    Raises
    ------
    EOFError
        After the last good byte, if a compressed file breaks off.
    """
    head = stream.read(4)
    stream.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return _inflated(stream, lambda: zlib.decompressobj(wbits=31))
    if head.startswith(b"BZh"):
        return _inflated(stream, bz2.BZ2Decompressor)
    if head == b"\x28\xb5\x2f\xfd":
        return _zstd(stream)
    return _plain(stream)


def _plain(stream: Any) -> Iterator[bytes]:
    while block := stream.read(BLOCK_BYTES):
        yield block


def _inflated(stream: Any, new: Any) -> Iterator[bytes]:
    """Through zlib or bz2; a file may be several compressed ones after each other, as `cat` makes them."""
    inflate, block = new(), stream.read(BLOCK_BYTES)
    while True:
        # A little file can hold an immense one: never more than a block at once.
        out = inflate.decompress(block, BLOCK_BYTES)
        if out:
            yield out
        if inflate.eof:
            rest = inflate.unused_data or stream.read(BLOCK_BYTES)
            if not rest.strip(b"\0"):  # tapes and some tools pad with zeros
                return
            inflate, block = new(), rest
            continue
        block = getattr(
            inflate, "unconsumed_tail", b""
        )  # zlib hands back what it could not take, bz2 keeps it
        if not block and len(out) < BLOCK_BYTES:
            block = stream.read(BLOCK_BYTES)
            if not block:
                raise EOFError("compressed file ends before its end mark")


def _zstd(stream: Any) -> Iterator[bytes]:
    with pa.CompressedInputStream(stream, "zstd") as inflated:
        # Small reads, because a read that meets the fault loses all it had.
        while block := inflated.read(1 << 14):
            yield block
