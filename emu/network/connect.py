"""Opening a data connection: connect, say hello, hear that the receiver accepts."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from emu.errors import DeadlineExceeded, EmulatorError, NodeLost, NodeMisbehaved
from emu.network.out_edge import OutEdge
from emu.network.tuning import tune_socket
from emu.wire import FrameReader, Kind, Message, encode_message

if TYPE_CHECKING:
    from emu.network.pacer import Pacer


async def open_edge(
    address: tuple[str, int],
    edge: int,
    *,
    token: str,
    pacer: Pacer | None = None,
    within: float = 10.0,
) -> OutEdge:
    """Return the connection of one edge, accepted by its receiver.

    Parameters
    ----------
    address
        Host and port of the receiver's `DataServer`.
    edge
        Position of the edge in the job.
    token
        Of the run.
    pacer
        Of this process; needed for shaped frames.
    within
        Wall seconds for connecting and the answer.

    Raises
    ------
    DeadlineExceeded
        If the receiver did not answer in time.
    NodeLost
        If nobody listens there, or the connection ended without an answer.
    NodeMisbehaved
        If the receiver refused, with its reason.
    """
    loop = asyncio.get_running_loop()
    where = f"{address[0]}:{address[1]}"
    sock = None
    try:
        async with asyncio.timeout(within):
            found = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
            sock = socket.socket(found[0][0], socket.SOCK_STREAM)
            sock.setblocking(False)
            tune_socket(sock)
            await loop.sock_connect(sock, found[0][4])
            hello = encode_message(Kind.HELLO, {"token": token, "edge": edge})
            await loop.sock_sendall(sock, hello)
            answer = await _read_answer(loop, sock)
        if answer.fields.get("accepted") != edge:
            reason = str(answer.fields.get("refused", "no reason"))[:300]
            raise NodeMisbehaved(f"{where} refused edge {edge}: {reason}")
    except TimeoutError:
        _close(sock)
        raise DeadlineExceeded(
            f"the sender of edge {edge} waited {within:g} s for {where} to accept it"
        ) from None
    except OSError as error:
        _close(sock)
        raise NodeLost(f"edge {edge} cannot reach {where}: {error}") from error
    except (EmulatorError, asyncio.CancelledError):
        _close(sock)
        raise
    return OutEdge(sock, edge, pacer=pacer)


async def _read_answer(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> Message:
    reader = FrameReader(lambda size: memoryview(bytearray(size)), kinds={Kind.HELLO})
    while True:
        count = await loop.sock_recv_into(sock, reader.get_buffer())
        if count == 0:
            raise ConnectionError("the connection ended without an answer")
        reader.received(count)
        answer = reader.take()
        if isinstance(answer, Message):
            if reader.inside:
                raise NodeMisbehaved("the receiver said more than its answer")
            return answer


def _close(sock: socket.socket | None) -> None:
    if sock is not None:
        sock.close()
