"""An HTTP server on the loopback that gives scripted answers and remembers what it was asked."""

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass
class Reply:
    """One answer: a body, or JSON where it is not text; `drip` sends it byte by byte with such pauses."""

    body: object = ""
    status: int = 200
    headers: dict = field(default_factory=dict)
    drip: float = 0.0


@dataclass
class Asked:
    method: str
    path: str
    parameters: dict
    headers: dict


class ScriptedServer:
    """Gives each request the next reply; the last one is given over and over."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        script = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self):
                split = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                given = parse_qs(split.query or body)
                parameters = {name: values[0] for name, values in given.items()}
                script.asked.append(Asked(self.command, split.path, parameters, dict(self.headers)))
                reply = script.replies.pop(0) if len(script.replies) > 1 else script.replies[0]
                text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
                self.send_response(reply.status)
                for name, value in {"Content-Length": str(len(text.encode())), **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self._write(text.encode(), reply.drip)

            do_GET = do_POST = _answer  # noqa: N815 - names that the base class prescribes

            def _write(self, data, pause):
                if not pause:
                    self.wfile.write(data)
                    return
                for position in range(len(data)):
                    try:
                        self.wfile.write(data[position : position + 1])
                        self.wfile.flush()
                    except OSError:  # the client has given up
                        return
                    time.sleep(pause)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def scripted(*replies):
    with ScriptedServer(*replies) as server:
        yield server
