"""Fragments on disk between reading and assembling, so that memory is bounded by a bucket, not by the import.

All fragments of one trace id fall into one bucket, in the order they were read.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import IO

import msgspec

from analysis.readers.fragment import Fragment, source_key

_N_BUCKETS = 64


class Spilled(msgspec.Struct, frozen=True, array_like=True):
    """A fragment and the format family that is to assemble it."""

    family: str
    n_file: int  # which file of the import stated it: two folders may hold files of one name
    fragment: Fragment


class Spill:
    """Buckets in temporary files without a name: they vanish with the process, however it ends."""

    def __init__(self) -> None:
        """Start with no bucket."""
        self._streams: dict[int, IO[bytes]] = {}
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Spilled)

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for stream in self._streams.values():
            stream.close()

    def add(self, spilled: Spilled) -> None:
        """Append a fragment to its bucket."""
        number = zlib.crc32(source_key(spilled.fragment.trace_id).encode()) % _N_BUCKETS
        if number not in self._streams:
            self._streams[number] = tempfile.TemporaryFile()  # noqa: SIM115 - leaving the context closes it
        data = self._encoder.encode(spilled)
        self._streams[number].write(len(data).to_bytes(8, "little") + data)

    def buckets(self) -> Iterator[dict[str, list[Spilled]]]:
        """Yield each bucket as {source key: its fragments in the order they came}; may be called again."""
        for number in sorted(self._streams):
            stream = self._streams[number]
            stream.seek(0)
            bucket: dict[str, list[Spilled]] = {}
            while size := stream.read(8):
                spilled = self._decoder.decode(stream.read(int.from_bytes(size, "little")))
                bucket.setdefault(source_key(spilled.fragment.trace_id), []).append(spilled)
            yield bucket
