"""Programs that `tools/study fits` runs in labs; they know nothing of emu.

fit_programs.py KIND ITERATIONS [ADDRESS OF THE SERVER]
"""

from __future__ import annotations

import http.client
import http.server
import os
import socket
import sys
import threading
import time
import xmlrpc.client
import xmlrpc.server
from collections.abc import Callable
from socketserver import ThreadingMixIn

import numpy as np
from typing_extensions import override

PORT, WORKERS = 8000, 3
#: Bytes that a worker gets, and sends, in an iteration.
BYTES = 150_000
RANK = int(os.environ["RANK"])
DRAWN = np.random.default_rng(RANK)


def think(seconds: float) -> None:
    """Compute for so long, a little longer in some ranks and iterations."""
    time.sleep(seconds + 0.02 * RANK + DRAWN.uniform(0, 0.01))


def repeated(count: int, step: Callable[[], object]) -> None:
    """Run all iterations; say when each begins, and stay until ports were looked at."""
    for number in range(count):
        print("iteration", number, time.monotonic(), flush=True)
        step()
    print("iteration", count, time.monotonic(), flush=True)
    time.sleep(0.7)


class Answers(http.server.BaseHTTPRequestHandler):
    """Pulls and pushes over HTTP."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with what a worker pulls."""
        self._answer(bytes(BYTES))

    def do_POST(self) -> None:
        """Take what a worker pushes."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"ok")

    def _answer(self, body: bytes) -> None:
        time.sleep(0.003)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Calls(ThreadingMixIn, xmlrpc.server.SimpleXMLRPCServer):
    """The same over XML-RPC."""

    daemon_threads = True


class KeptAlive(xmlrpc.server.SimpleXMLRPCRequestHandler):
    """A connection for all calls of a worker."""

    protocol_version = "HTTP/1.1"


def received(connection: socket.socket) -> None:
    """Read what the other side sends in an iteration."""
    left = BYTES
    while left:
        left -= len(connection.recv(left)) or sys.exit()


def serve(kind: str, count: int) -> None:
    """Serve workers until the lab ends it."""
    if kind == "http":
        http.server.ThreadingHTTPServer(("", PORT), Answers).serve_forever()
    if kind == "xmlrpc":
        calls = Calls(("", PORT), KeptAlive, logRequests=False)
        calls.register_function(bytes, "pull")
        calls.register_function(lambda body: len(body.data), "push")
        calls.serve_forever()
    listening = socket.create_server(("", PORT))
    connections = [listening.accept()[0] for _ in range(WORKERS)]
    # Who connected first differs from run to run, and whom it serves first counts.
    connections.sort(key=lambda one: one.getpeername())
    if kind == "turns":
        for _ in range(count):
            for one in connections:
                received(one)
            time.sleep(0.01)
            for one in connections:
                one.sendall(bytes(BYTES))
    else:
        barrier = threading.Barrier(WORKERS)

        def average(one: socket.socket) -> None:
            for _ in range(count):
                received(one)
                barrier.wait()
                time.sleep(0.01)
                one.sendall(bytes(BYTES))

        for one in connections:
            threading.Thread(target=average, args=(one,)).start()
    time.sleep(60)


def ask(kind: str, count: int, address: str) -> None:
    """Work with a server."""
    connection = None
    while connection is None:
        try:
            connection = socket.create_connection((address, PORT))
        except OSError:
            time.sleep(0.05)
    if kind in {"http", "xmlrpc"}:
        connection.close()
    web = http.client.HTTPConnection(address, PORT)
    proxy = xmlrpc.client.ServerProxy(f"http://{address}:{PORT}")

    def over_http() -> None:
        web.request("GET", "/")
        web.getresponse().read()
        think(0.1)
        web.request("POST", "/", body=bytes(BYTES))
        web.getresponse().read()

    def over_xmlrpc() -> None:
        proxy.pull(BYTES // 2)
        think(0.1)
        proxy.push(xmlrpc.client.Binary(bytes(BYTES // 2)))

    def averaged() -> None:
        think(0.1)
        connection.sendall(bytes(BYTES))
        received(connection)

    steps = {"http": over_http, "xmlrpc": over_xmlrpc}
    repeated(count, steps.get(kind, averaged))


def peer(kind: str, count: int) -> None:
    """Run a collective of torch's gloo in every iteration."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    part, parts = torch.zeros(30_000), torch.zeros(world * 30_000)

    def step() -> None:
        think(0.1)
        if kind == "all_to_all":
            dist.all_to_all_single(torch.empty_like(parts), parts)
        elif kind == "all_gather":
            dist.all_gather([torch.empty_like(part) for _ in range(world)], part)
        else:
            dist.broadcast(parts, 0)
            think(0.05)
            into = [torch.empty_like(part) for _ in range(world)] if RANK == 0 else None
            dist.gather(part, into, 0)

    repeated(count, step)


if __name__ == "__main__":
    name, iterations = sys.argv[1], int(sys.argv[2])
    if sys.argv[3:]:
        ask(name, iterations, sys.argv[3])
    elif name in {"http", "xmlrpc", "threads", "turns"}:
        serve(name, iterations)
    else:
        peer(name, iterations)
