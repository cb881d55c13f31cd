"""Carries TCP connections over a pair of pipes: `tunnel.py listen PORT` and `tunnel.py connect PORT FD`.

What listens stands in a cluster, what connects stands beside the daemon, and ssh or kubectl joins the stdout of each
with the stdin of the other. It imports nothing of Overspan, so that its text alone is the program of the far end, for
Python 3.9 or newer. A frame is the number of a connection, a kind, a length, and data. Each direction of a connection
has a window, so a slow reader holds up no other. `connect` writes `open` to stderr when the far end listens, and ends
with the process that has the other end of the pipe FD.
"""

import asyncio
import os
import struct
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Coroutine, Sequence
from typing import Any, Optional

OPEN, DATA, END, RESET, CREDIT, READY, BEAT = range(7)
"""The kinds of frames. END: nothing more comes in that direction. CREDIT: so many bytes were passed on."""
HEAD = struct.Struct(">IBI")
WINDOW = 1 << 18
"""Bytes of one direction of a connection that may be under way."""
CHUNK = 1 << 15
MOST = 1000
"""Connections at once; from there on a new one is closed at once."""
BEAT_SECONDS = 10.0
LOST_SECONDS = 35.0
"""A peer that is silent for so long is gone: the port must be free for the next tunnel."""
CONNECT_SECONDS = 10.0


class TunnelLost(Exception):
    """The other end is gone, or does not speak this protocol."""


class TunneledConnection:
    """One connection, at this end."""

    def __init__(self, number: int, tunnel: "Tunnel") -> None:
        self.number = number
        self._tunnel = tunnel
        self._credit = WINDOW
        self._refilled = asyncio.Event()
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def carry(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Pass bytes on in both directions until both have ended, or one is broken."""
        ways = [asyncio.ensure_future(self._send(reader)), asyncio.ensure_future(self._receive(writer))]
        try:
            await asyncio.gather(*ways)
            writer.close()
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            await self._tunnel.reset(self.number)
        finally:
            for way in ways:
                way.cancel()
            self._tunnel.channels.pop(self.number, None)

    def take(self, kind: int, data: bytes) -> None:
        """A frame has come."""
        if kind == DATA:
            self._arrived.put_nowait(data)
        elif kind == END:
            self._arrived.put_nowait(b"")
        elif kind == CREDIT:
            self._credit += int.from_bytes(data, "big")
            self._refilled.set()

    async def _send(self, reader: StreamReader) -> None:
        while True:
            while self._credit <= 0:
                self._refilled.clear()
                await self._refilled.wait()
            data = await reader.read(min(CHUNK, self._credit))
            if not data:
                await self._tunnel.write(self.number, END)
                return
            self._credit -= len(data)
            await self._tunnel.write(self.number, DATA, data)

    async def _receive(self, writer: StreamWriter) -> None:
        while True:
            data = await self._arrived.get()
            if not data:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            await self._tunnel.write(self.number, CREDIT, len(data).to_bytes(4, "big"))


class Tunnel:
    """This end: the pipes, and the connections by number."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.channels: dict[int, TunneledConnection] = {}
        self._tasks: dict[int, asyncio.Future[None]] = {}
        self._reader = reader
        self._writer = writer
        self._writing = asyncio.Lock()
        self._last = 0

    async def listen(self, port: int) -> None:
        """Take connections at a port and pass them on, until the other end is gone. OSError where it is taken."""
        server = await asyncio.start_server(self._accept, None, port)
        async with server:
            await self.write(0, READY)
            await self._run(None)

    async def connect(self, port: int) -> None:
        """Make a connection to a port of this machine for each that the other end took, until that is gone."""
        await self._run(port)

    async def write(self, number: int, kind: int, data: bytes = b"") -> None:
        """Send one frame."""
        self._writer.write(HEAD.pack(number, kind, len(data)) + data)
        # Before Python 3.10 only one at a time may wait there.
        async with self._writing:
            await self._writer.drain()

    async def reset(self, number: int) -> None:
        """Say that a connection is broken."""
        try:
            await self.write(number, RESET)
        except OSError:
            # The whole tunnel is.
            pass

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        if len(self.channels) >= MOST:
            writer.close()
            return
        self._last += 1
        number = self._last
        self.channels[number] = channel = TunneledConnection(number, self)
        self._begin(number, channel.carry(reader, writer))
        await self.write(number, OPEN)

    def _begin(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[number] = task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _run(self, port: Optional[int]) -> None:
        beating = asyncio.ensure_future(self._beat())
        try:
            while True:
                number, kind, data = await asyncio.wait_for(self._read(), LOST_SECONDS)
                if kind == READY:
                    print("open", file=sys.stderr, flush=True)
                elif kind == OPEN and port is not None:
                    self.channels[number] = channel = TunneledConnection(number, self)
                    self._begin(number, self._dial(channel, port))
                elif kind == RESET:
                    if number in self._tasks:
                        self._tasks[number].cancel()
                elif number in self.channels:
                    self.channels[number].take(kind, data)
        except asyncio.TimeoutError:
            raise TunnelLost(f"nothing has come from the other end for {LOST_SECONDS:g} s") from None
        except asyncio.IncompleteReadError:
            raise TunnelLost("the other end is gone") from None
        finally:
            beating.cancel()

    async def _dial(self, channel: TunneledConnection, port: int) -> None:
        try:
            made = asyncio.open_connection("127.0.0.1", port)
            reader, writer = await asyncio.wait_for(made, CONNECT_SECONDS)
        except (OSError, asyncio.TimeoutError):
            self.channels.pop(channel.number, None)
            await self.reset(channel.number)
            return
        await channel.carry(reader, writer)

    async def _read(self) -> "tuple[int, int, bytes]":
        number, kind, length = HEAD.unpack(await self._reader.readexactly(HEAD.size))
        if kind > BEAT or length > CHUNK:
            raise TunnelLost("what the other end says is not of this protocol")
        return number, kind, await self._reader.readexactly(length)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await self.write(0, BEAT)


async def open_pipes() -> "tuple[StreamReader, StreamWriter]":
    """This process's stdin and stdout as streams."""
    loop = asyncio.get_running_loop()
    reader = StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), sys.stdout.buffer
    )
    return reader, StreamWriter(transport, protocol, reader, loop)


async def serve(words: Sequence[str]) -> int:
    """Be one end until the other is gone: 0, or 1 with a sentence on stderr where the port is taken."""
    role, port = words[0], int(words[1])
    reader, writer = await open_pipes()
    tunnel = Tunnel(reader, writer)
    if role == "connect":
        owner = int(words[2])
        # Nothing is ever written there: it can be read when its writer is gone.
        asyncio.get_running_loop().add_reader(owner, lambda: os._exit(0))
    try:
        await (tunnel.listen(port) if role == "listen" else tunnel.connect(port))
    except TunnelLost as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"port {port}: {os.strerror(error.errno) if error.errno else error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(serve(sys.argv[1:])))
