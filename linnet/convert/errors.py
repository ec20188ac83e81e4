"""What a conversion refuses. Each message names the thing and the next step."""

from __future__ import annotations


class ConvertError(Exception):
    """A checkpoint that cannot be made a package."""


class OutputError(ConvertError):
    """A folder that the package cannot be written to."""


class LibraryMissingError(ConvertError):
    """numpy, or the library that decodes GGUF's number formats, is not installed."""

    def __init__(self, missing: str) -> None:
        super().__init__(f"this conversion needs {missing}, which is not installed: pip install gguf numpy")
