"""A relay that writes down what a client sends and is sent."""

import json
import re
import socket
import threading
from contextlib import suppress
from typing import Any, Self


class WireTrace:
    """Listens on loopback, passes everything on to `target` (host:port) and back, and keeps the bytes."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sent: list[bytearray] = []
        self._heard: list[bytearray] = []
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

    def heard(self, method: str) -> list[dict[str, Any]]:
        """The params of the notifications of that kind which came as events."""
        events = [
            data for heard in self._heard for data in re.findall(rb"^data: (\{.*?\})\r?$", bytes(heard), re.MULTILINE)
        ]
        messages = [json.loads(data) for data in events]
        return [message["params"] for message in messages if message.get("method") == method]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(self._target)
            sent, heard = bytearray(), bytearray()
            self._sent.append(sent)
            self._heard.append(heard)
            threading.Thread(target=_pump, args=(client, upstream, sent), daemon=True).start()
            threading.Thread(target=_pump, args=(upstream, client, heard), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, keep: bytearray) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            keep += data
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
