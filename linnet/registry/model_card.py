"""The head of a README on the Hub: a few lines of YAML that its pages and search read, made from the card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from linnet.registry.card import Card
from linnet.registry.errors import PackageError, Problem
from linnet.registry.package import README_NAME

LIBRARY = "linnet"
# What finds the packages among the Hub's models, whatever else they are tagged.
TAGS = ("linnet", "nest")
_HEAD = re.compile(r"\s*---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)

# Licences that the Hub knows under a word of its own, which is the SPDX identifier in small letters.
HUB_LICENSES = frozenset(
    """
    afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
    cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 cdla-sharing-1.0 ecl-2.0 epl-1.0 epl-2.0 eupl-1.1 eupl-1.2 gfdl-1.3 gpl-2.0 gpl-3.0 isc
    lgpl-2.1 lgpl-3.0 lppl-1.3c mit mit-0 mpl-2.0 ms-pl ncsa odbl-1.0 ofl-1.1 osl-3.0 postgresql unlicense wtfpl zlib
    """.split()
)
# Tasks that the Hub sorts models by; a tag of the card that is one of them says which.
TASKS = frozenset(
    """
    any-to-any audio-classification audio-text-to-text audio-to-audio automatic-speech-recognition depth-estimation
    document-question-answering feature-extraction fill-mask graph-ml image-classification image-feature-extraction
    image-segmentation image-text-to-text image-text-to-video image-to-3d image-to-image image-to-text image-to-video
    keypoint-detection mask-generation object-detection question-answering reinforcement-learning robotics
    sentence-similarity summarization table-question-answering tabular-classification tabular-regression
    text-classification text-generation text-ranking text-to-3d text-to-audio text-to-image text-to-speech text-to-video
    time-series-forecasting token-classification translation unconditional-image-generation video-classification
    video-text-to-text video-to-video visual-document-retrieval visual-question-answering zero-shot-classification
    zero-shot-image-classification zero-shot-object-detection
    """.split()
)


def split_head(readme: str) -> tuple[str, str]:
    """A README's YAML head, without its marks, and what follows it; the head is empty where there is none."""
    found = _HEAD.match(readme)
    return (found[1], readme[found.end() :].lstrip("\r\n")) if found else ("", readme)


def model_card(card: Card, readme: str, repo: str, *, license_file: str | None = None) -> str:
    """The package's README under a head for the Hub.

    What the card says is in the head as the card says it: `license`, `library_name`, `pipeline_tag`, `tags`, and, where
    the weights are in another repository than `repo`, `base_model`. Other keys of a head that the README has already
    are kept. `license_file` names the text of a licence that the Hub has no word for. Raises PackageError for a head
    that is no YAML table.
    """
    from huggingface_hub import ModelCardData

    head, text = split_head(readme)
    kept = {key: value for key, value in _parsed(head).items() if key not in _OWN_KEYS}
    data = ModelCardData(**{**kept, **_fields(card, repo, license_file)})
    return f"---\n{data.to_yaml()}\n---\n\n{text}"


_OWN_KEYS = ("license", "license_name", "license_link", "library_name", "pipeline_tag", "tags", "base_model")


def _fields(card: Card, repo: str, license_file: str | None) -> dict[str, Any]:
    tasks = [tag for tag in card.model.tags if tag in TASKS]
    fields: dict[str, Any] = {**_license(card.model.license, license_file), "library_name": LIBRARY}
    if tasks:
        fields["pipeline_tag"] = tasks[0]
    fields["tags"] = list(dict.fromkeys((*TAGS, card.model.family, *card.model.tags)))
    if card.weights.repo is not None and card.weights.repo.lower() != repo.lower():
        fields["base_model"] = card.weights.repo
    return fields


def _license(spdx: str, file: str | None) -> dict[str, str]:
    word = spdx.lower()
    for end in ("-only", "-or-later"):
        word = word.removesuffix(end)
    if word in HUB_LICENSES:
        return {"license": word}
    fields = {"license": "other"}
    if spdx != "other":
        fields["license_name"] = spdx.lower().replace(" ", "-")
    if file is not None:
        fields["license_link"] = file
    return fields


def _parsed(head: str) -> Mapping[str, Any]:
    if not head.strip():
        return {}
    from huggingface_hub import ModelCard

    try:
        card: Any = ModelCard(f"---\n{head}\n---\n", ignore_metadata_errors=False)
        data: dict[str, Any] = card.data.to_dict()
    except Exception as error:
        # YAML's own errors, the Hub client's ValueError, a recursion that goes too deep: all say that it is none.
        reason = (str(error).splitlines() or ["unknown error"])[0].rstrip(".")
        message = f"The head of {README_NAME} is no YAML table: {reason}."
        help = "Correct it, or remove it: nest push writes one from the card."
        raise PackageError([Problem("readme.head", README_NAME, message, help)]) from None
    return {str(key): value for key, value in data.items()}
