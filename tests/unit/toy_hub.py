"""A Hugging Face hub of a few repositories on this machine, for tests: the part of its protocol that downloads use."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Files = dict[str, bytes]


@dataclass
class Repository:
    """refs: branch or tag -> commit. files: commit -> path -> content."""

    refs: dict[str, str]
    files: dict[str, Files]


@dataclass
class Hub:
    """repositories: "datasets/owner/name" or "models/owner/name". asked: the paths of all requests."""

    repositories: dict[str, Repository]
    asked: list[str] = field(default_factory=list)
    address: str = ""


class Missing(Exception):
    """What the hub's header X-Error-Code says."""


@contextmanager
def serve(repositories: dict[str, Repository]) -> Iterator[Hub]:
    hub = Hub(repositories)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = unquote(urlsplit(self.path).path).strip("/")
            hub.asked.append(path)
            try:
                content, headers = answer(hub, path.split("/"), body, "recursive=true" in self.path.lower())
                self.send_response(200)
            except Missing as error:
                content, headers = b"", {"X-Error-Code": str(error)}
                self.send_response(404)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_POST = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def answer(hub: Hub, parts: list[str], body: bytes, recursive: bool) -> tuple[bytes, dict[str, str]]:
    if parts[0] == "api":
        _, files, commit = find(hub, parts[1:4], parts[5] if len(parts) > 5 else "main")
        what, inside = parts[4] if len(parts) > 4 else "revision", "/".join([*parts[6:], ""])
        if what == "revision":
            siblings = [{"rfilename": path} for path in files]
            value: Any = {"_id": "0", "id": "/".join(parts[2:4]), "sha": commit, "private": False, "siblings": siblings}
        elif what == "tree":
            folders = {path[:i] for path in files for i, c in enumerate(path) if c == "/" and path.startswith(inside)}
            value = [entry(path, files) for path in [*files, *sorted(folders)] if path.startswith(inside)]
            value = [e for e in value if recursive or "/" not in e["path"][len(inside) :]]
        else:  # paths-info
            wanted = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode()).get("paths", [])
            value = [entry(path, files) for path in wanted if path in files]
        return json.dumps(value).encode(), {"Content-Type": "application/json"}
    if "resolve" not in parts:
        return b"", {}
    at = parts.index("resolve")
    kind = "datasets" if parts[0] == "datasets" else "models"
    _, files, commit = find(hub, [kind, *parts[at - 2 : at]], parts[at + 1])
    path = "/".join(parts[at + 2 :])
    if path not in files:
        raise Missing("EntryNotFound")
    return files[path], {"ETag": f'"{entry(path, files)["oid"]}"', "X-Repo-Commit": commit}


def find(hub: Hub, name: list[str], revision: str) -> tuple[Repository, Files, str]:
    repository = hub.repositories.get("/".join(name))
    if repository is None:
        raise Missing("RepoNotFound")
    commit = repository.refs.get(revision, revision)
    if commit not in repository.files:
        raise Missing("RevisionNotFound")
    return repository, repository.files[commit], commit


def entry(path: str, files: Files) -> dict[str, Any]:
    if path not in files:
        return {"type": "directory", "path": path, "oid": "0" * 40}
    oid = hashlib.sha1(files[path], usedforsecurity=False).hexdigest()
    return {"type": "file", "path": path, "size": len(files[path]), "oid": oid}
