"""A relay that writes down what a client sends."""

import json
import re
import socket
import threading
from contextlib import suppress
from typing import Self


class WireTrace:
    """Listens on loopback, passes everything on to `target` (host:port) and back, and keeps the client's bytes."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sent: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/mcp"

    @property
    def methods(self) -> list[str]:
        """The JSON-RPC methods in the order in which they were sent on each connection."""
        found = []
        for sent in self._sent:
            for body in re.findall(rb"\{.*?\}(?=POST|GET|DELETE|$)", bytes(sent), re.DOTALL):
                with suppress(ValueError):
                    found.append(json.loads(body).get("method", ""))
        return found

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(self._target)
            sent = bytearray()
            self._sent.append(sent)
            threading.Thread(target=_pump, args=(client, upstream, sent), daemon=True).start()
            threading.Thread(target=_pump, args=(upstream, client, None), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, keep: bytearray | None) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            if keep is not None:
                keep += data
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
