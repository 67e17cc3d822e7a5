from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from hagmeta.datasets import Dataset
from hagmeta.datasets.base import make_dataset


@pytest.fixture
def graph() -> Dataset:
    rng = np.random.default_rng(0)
    return make_dataset(
        "small",
        edges=rng.integers(60, size=(150, 2)),
        labels=np.arange(60) % 5,
        features=scipy.sparse.random(60, 20, density=0.2, format="csr", rng=rng),
        source="small",
    )


@pytest.fixture
def write_mat(graph: Dataset) -> Callable[[Path], str]:
    """Write the small graph in the .mat layout, half of it a file, labels 10, 11, ... as the source's own."""

    def write(folder: Path) -> str:
        prefix = str(folder / "Small")
        np.savetxt(f"{prefix}_network", graph.edges, fmt="%d", delimiter="\t")
        for part, index in (("train", np.arange(0, 60, 2)), ("test", np.arange(1, 60, 2))):
            content = {
                "Index": index[None],
                "Label": 10.0 + graph.labels[index][:, None],
                "Attributes": scipy.sparse.csc_matrix(graph.features[index]),
            }
            scipy.io.savemat(f"{prefix}_{part}.mat", content, do_compression=True)
        return prefix

    return write


@dataclass
class Server:
    """A web server of our own: what it serves, and how it misbehaves."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)  # announce all, send half, hang up; once
    html: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/")
            state.requests.append(name)
            if name not in state.files:
                self.send_error(404)
                return
            content = state.files[name]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header(
                "Content-Type", "text/html" if name in state.html else "application/octet-stream"
            )
            self.end_headers()
            if name in state.cut:
                state.cut.remove(name)
                content = content[: len(content) // 2]
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        state = Server(f"http://127.0.0.1:{http.server_port}")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield state
        http.shutdown()
        thread.join()
