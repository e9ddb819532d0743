"""A Hugging Face hub of a few repositories on this machine, for tests: the part of its protocol
that downloads use.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Files = dict[str, bytes]
# "datasets/owner/name" or "models/owner/name" -> commit -> its files
Repositories = dict[str, dict[str, Files]]
OLD, NEW = "a" * 40, "b" * 40
REFS = {"main": NEW, "v1": OLD}


@contextmanager
def serve(repositories: Repositories) -> Iterator[tuple[str, list[str]]]:
    """The hub's address, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path).strip("/")
            asked.append(path)
            try:
                content, headers = answer(
                    repositories, path.split("/"), "recursive=true" in self.path.lower()
                )
                self.send_response(200)
            except LookupError as error:
                content, headers = b"", {"X-Error-Code": str(error.args[0])}
                self.send_response(404)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def answer(
    repositories: Repositories, parts: list[str], recursive: bool
) -> tuple[bytes, dict[str, str]]:
    if parts[0] == "api":
        files, commit = find(repositories, parts[1:4], parts[5] if len(parts) > 5 else "main")
        what, inside = parts[4] if len(parts) > 4 else "revision", "/".join([*parts[6:], ""])
        if what == "revision":
            siblings = [{"rfilename": path} for path in files]
            value: Any = {
                "_id": "0",
                "id": "/".join(parts[2:4]),
                "sha": commit,
                "private": False,
                "siblings": siblings,
            }
        else:  # tree
            folders = {
                path[:i]
                for path in files
                for i, c in enumerate(path)
                if c == "/" and path.startswith(inside)
            }
            value = [
                entry(path, files) for path in [*files, *sorted(folders)] if path.startswith(inside)
            ]
            value = [e for e in value if recursive or "/" not in e["path"][len(inside) :]]
        return json.dumps(value).encode(), {"Content-Type": "application/json"}
    if "resolve" not in parts:
        return b"", {}
    at = parts.index("resolve")
    kind = "datasets" if parts[0] == "datasets" else "models"
    files, commit = find(repositories, [kind, *parts[at - 2 : at]], parts[at + 1])
    path = "/".join(parts[at + 2 :])
    if path not in files:
        raise LookupError("EntryNotFound")
    return files[path], {"ETag": f'"{entry(path, files)["oid"]}"', "X-Repo-Commit": commit}


def find(repositories: Repositories, name: list[str], revision: str) -> tuple[Files, str]:
    commits, commit = repositories.get("/".join(name)), REFS.get(revision, revision)
    if commits is None or commit not in commits:
        raise LookupError("RepoNotFound" if commits is None else "RevisionNotFound")
    return commits[commit], commit


def entry(path: str, files: Files) -> dict[str, Any]:
    if path not in files:
        return {"type": "directory", "path": path, "oid": "0" * 40}
    oid = hashlib.sha1(files[path], usedforsecurity=False).hexdigest()
    return {"type": "file", "path": path, "size": len(files[path]), "oid": oid}
