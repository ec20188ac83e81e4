"""all-MiniLM-L6-v2 with its real checkpoint against transformers' BertModel."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import BertConfig, BertModel

from linnet import nest
from linnet.runner.errors import IndexRangeError, InputError

pytestmark = pytest.mark.checkpoint

TEXTS = [
    "A cat sits on the mat.",
    "A kitten rests upon a rug, quite contentedly, in the late light of an autumn afternoon.",
    "Quarterly revenue rose by four percent.",
    "Profits grew.",
]


@pytest.fixture(scope="module")
def batch(minilm_checkpoint):
    tokenizer = Tokenizer.from_file(str(minilm_checkpoint / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(TEXTS)
    ids = torch.tensor([e.ids for e in encoded])
    types = torch.tensor([e.type_ids for e in encoded])
    mask = torch.tensor([e.attention_mask for e in encoded]).bool()
    assert not mask.all()
    return ids, types, mask


@pytest.fixture(scope="module")
def reference(minilm_checkpoint):
    config = BertConfig(**json.loads((minilm_checkpoint / "config.json").read_text()), attn_implementation="eager")
    model = BertModel(config, add_pooling_layer=False)
    stored = load_file(minilm_checkpoint / "model.safetensors")
    weights = {name: tensor for name, tensor in stored.items() if not name.startswith("pooler.")}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert missing == []
    assert set(unexpected) <= {"embeddings.position_ids"}
    return model.eval()


@pytest.fixture(scope="module", params=["exact", "equivalent"])
def model(request, root, minilm_checkpoint):
    folder = root / "nests" / "all-minilm-l6-v2"
    return nest.load(folder, weights=minilm_checkpoint, numerics=request.param, device="cpu")


def test_embeddings_and_states_are_transformers(model, reference, batch):
    ids, types, mask = batch
    with torch.no_grad():
        states = reference(ids, mask.long(), types).last_hidden_state
    counted = mask.unsqueeze(-1).float()
    wanted = functional.normalize((states * counted).sum(1) / counted.sum(1), dim=-1)
    found = model(ids, types, mask)
    assert (found - wanted).abs().max() < 1e-5
    assert ((model.run_entry("states", [ids, types, mask]) - states) * counted).abs().max() < 1e-5


def test_padding_changes_nothing(model, batch):
    ids, types, mask = batch
    together = model(ids, types, mask)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(len(TEXTS)))
    for row in range(len(TEXTS)):
        length = int(mask[row].sum())
        alone = model(ids[row : row + 1, :length], types[row : row + 1, :length], mask[row : row + 1, :length])
        assert (alone - together[row]).abs().max() < 1e-6


def test_like_meanings_are_closest(model, batch):
    similarity = model(*batch) @ model(*batch).T
    similarity.fill_diagonal_(-1)
    assert similarity.argmax(1).tolist() == [1, 0, 3, 2]


def test_a_text_of_padding_alone_gives_zeros(model, batch):
    ids, types, mask = batch
    assert model(ids, types, torch.zeros_like(mask)).abs().max() == 0


def test_bad_inputs_are_refused(model):
    one = torch.zeros(1, 1, dtype=torch.int32)
    with pytest.raises(IndexRangeError):
        model(one + 30522, one, one.bool())
    with pytest.raises(IndexRangeError):
        model(one, one + 2, one.bool())
    long = torch.zeros(1, 513, dtype=torch.int32)
    with pytest.raises(InputError, match="MaxSeq"):
        model(long, long, long.bool())
