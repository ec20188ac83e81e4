"""An S3 server for tests: moto's, one request at a time: its check of a condition and the put after it are two steps.

python tests/s3_server.py --port 9000
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

BUCKET = "registry"
Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


def environment(endpoint: str) -> dict[str, str]:
    """What a client sets to reach it."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "writer",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@contextmanager
def running() -> Iterator[str]:
    """Its address, as a process of its own, with the bucket made."""
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, env=os.environ | environment(""))
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 300)
        assert ready, "the server did not start in five minutes"
        endpoint = process.stdout.readline().decode().strip()
        httpx2.put(f"{endpoint}/{BUCKET}").raise_for_status()
        yield endpoint
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _serially(app: Application) -> Application:
    lock = threading.Lock()

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with lock:
            return [b"".join(app(environ, start_response))]

    return answer


def main() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = _serially(DomainDispatcherApplication(create_backend_app))
    # A thread for each connection: clients keep some open on which they ask nothing.
    server = make_server("127.0.0.1", parser.parse_args().port, app, threaded=True)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
