"""One of many processes that create the same paths: `python store_writer.py URL PATH...` prints those it made.

It begins when a line comes in, so that all can have imported what they need.
"""

from __future__ import annotations

import json
import os
import sys

from linnet.registry.store.open import open_store


def main() -> None:
    url, *paths = sys.argv[1:]
    store = open_store(url)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps([path for path in paths if store.create(path, f"{path} by {os.getpid()}".encode())]))


if __name__ == "__main__":
    main()
