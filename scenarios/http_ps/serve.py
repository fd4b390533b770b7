"""A parameter server over HTTP: takes gradients by POST, answers with parameters."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Answers a POST with as many bytes as came."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read gradients, send parameters."""
        size = int(self.headers["Content-Length"])
        gradients = self.rfile.read(size)
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(gradients)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


ThreadingHTTPServer(("", 8000), Handler).serve_forever()
