"""A worker of the parameter server: computes, sends gradients, gets parameters."""

import argparse
import http.client
import socket
import time


def connect(host: str) -> http.client.HTTPConnection:
    """Return a connection to the server, once it is there."""
    while True:
        server = http.client.HTTPConnection(host, 8000)
        try:
            server.connect()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            server.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return server


def work(seconds: float) -> None:
    """Keep a core busy for so much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def main() -> None:
    """Take steps; print a line when one begins."""
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("--kilobytes", type=float, default=500.0)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--compute", type=float, default=0.05, help="CPU seconds")
    given = parser.parse_args()
    server = connect(given.host)
    gradients = bytes(int(1000 * given.kilobytes))
    for step in range(given.steps):
        print(f"step {step}", flush=True)
        work(given.compute)
        server.request("POST", "/", gradients)
        server.getresponse().read()
    time.sleep(0.7)  # so that the ports of the last step are seen


if __name__ == "__main__":
    main()
