"""A server of feature rows: takes ids, answers with as many rows."""

import socket
import socketserver

import numpy as np

VERTICES, COLUMNS = 20_000, 100


class Handler(socketserver.BaseRequestHandler):
    """Answers int64 ids, after their number, with rows of float32."""

    def handle(self) -> None:
        """Answer until the other side has gone."""
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.request.makefile("rb") as asked:
            while head := asked.read(8):
                (count,) = np.frombuffer(head, np.int64)
                ids = np.frombuffer(asked.read(8 * int(count)), np.int64)
                self.request.sendall(features[ids].tobytes())


features = np.random.default_rng(0).normal(size=(VERTICES, COLUMNS)).astype(np.float32)
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("", 8000), Handler).serve_forever()
