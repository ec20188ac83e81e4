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
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

BUCKET = "registry"


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


def main() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", parser.parse_args().port, DomainDispatcherApplication(create_backend_app))
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
