"""Servers as packages, and indexes that serve them: a wheel and a tarball, made here, over HTTP on loopback."""

import base64
import csv
import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SERVER = """
import json, sys


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "packaged", "version": "1.0"}}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        return {"tools": [{"name": "echo", "description": "Says it again", "inputSchema": schema}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["arguments"]["text"] + " ".join(sys.argv[1:])}]}
    return {}


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(message["method"], message.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
"""A stdio server in pure Python that knows one tool, which also says the program's arguments."""


def wheel(
    name: str = "echo-server",
    version: str = "1.0",
    *,
    source: str = SERVER,
    programs: Mapping[str, str] | None = None,
    requires: tuple[str, ...] = (),
) -> tuple[str, bytes]:
    """File name and content. `programs` are console scripts by name."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    scripts = {name: f"{module}:main"} if programs is None else programs
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(
        f"Requires-Dist: {requirement}\n" for requirement in requires
    )
    files = {
        f"{module}.py": source,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\n" + "".join(f"{k} = {v}\n" for k, v in scripts.items()),
    }
    record = "".join(f"{path},{_record_hash(text.encode())},{len(text.encode())}\n" for path, text in files.items())
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), text)
    return f"{module}-{version}-py3-none-any.whl", packed.getvalue()


def repacked(site_packages: Path) -> dict[str, bytes]:
    """Wheels of everything that is installed there, by file name: what an index would have given."""
    wheels = {}
    for info in sorted(site_packages.glob("*.dist-info")):
        tags = [line[5:] for line in (info / "WHEEL").read_text().splitlines() if line.startswith("Tag: ")]
        tag = "-".join(".".join(sorted(set(part))) for part in zip(*(tag.split("-") for tag in tags), strict=True))
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for path, *_ in csv.reader((info / "RECORD").read_text().splitlines()):
                if not path.startswith("..") and not path.endswith((".pyc", "INSTALLER", "REQUESTED")):
                    archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), (site_packages / path).read_bytes())
        wheels[f"{info.name.removesuffix('.dist-info')}-{tag}.whl"] = packed.getvalue()
    return wheels


def _record_hash(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def tarball(about: Mapping[str, object], files: Mapping[str, str]) -> bytes:
    """A package for Node."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, text in {"package.json": json.dumps(about), **files}.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size, entry.mode = len(text.encode()), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(packed.getvalue(), mtime=0)


@dataclass
class Index:
    """What is served: wheels as a simple index at /simple, tarballs as a registry at /npm."""

    wheels: dict[str, bytes] = field(default_factory=dict)
    tarballs: dict[str, tuple[Mapping[str, object], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    origin: str = ""

    @property
    def simple(self) -> str:
        return f"{self.origin}/simple"

    @property
    def npm(self) -> str:
        return f"{self.origin}/npm"

    def add_wheel(self, *named: str, **content: object) -> None:
        name, data = wheel(*named, **content)  # type: ignore[arg-type]
        self.wheels[name] = data

    def add_node(self, about: Mapping[str, object], files: Mapping[str, str]) -> None:
        self.tarballs[str(about["name"])] = about, tarball(about, files)

    def answer(self, path: str) -> tuple[str, bytes] | None:
        self.asked.append(path)
        if path.startswith("/simple/"):
            project = path.split("/")[2].replace("-", "_")
            files = [name for name in self.wheels if name.startswith(f"{project}-")]
            links = "".join(
                f'<a href="/files/{name}#sha256={hashlib.sha256(self.wheels[name]).hexdigest()}">{name}</a>\n'
                for name in files
            )
            return ("text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode()) if files else None
        if path.startswith("/files/") and (data := self.wheels.get(path.removeprefix("/files/"))):
            return "application/octet-stream", data
        return self._node(path.replace("%2f", "/").replace("%2F", "/"))

    def _node(self, path: str) -> tuple[str, bytes] | None:
        name, _, file = path.removeprefix("/npm/").partition("/-/")
        if name not in self.tarballs:
            return None
        about, data = self.tarballs[name]
        if file:
            return "application/octet-stream", data
        version = str(about["version"])
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        dist = {"tarball": f"{self.npm}/{name}/-/it.tgz", "integrity": integrity}
        document = {"name": name, "dist-tags": {"latest": version}, "versions": {version: {**about, "dist": dist}}}
        return "application/json", json.dumps(document).encode()


@contextmanager
def serving(index: Index, *, host: str = "127.0.0.1") -> Iterator[Index]:
    """The index over HTTP, on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = index.answer(self.path)
            self.send_response(404 if found is None else 200)
            kind, data = found or ("text/plain", b"no such thing")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET  # noqa: N815  the name that the base class looks for

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer((host, 0), Handler)
    index.origin = f"http://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
