"""The Qwen3 packages at small sizes: against transformers, against the seed package, and against themselves."""

from __future__ import annotations

import json
import tomllib
from functools import cache

import pytest
import torch
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from linnet import nest
from linnet.language.check import load
from linnet.language.program.binding import bind
from linnet.runner.torch.module import load_model

SMALL = {
    "Vocab": 96,
    "H": 128,
    "Heads": 4,
    "KvHeads": 2,
    "HeadDim": 64,
    "Inner": 256,
    "Layers": 2,
    "Batch": 3,
    "MaxSeq": 16,
    "PageSize": 4,
    "T": "f32",
}


@cache
def program(folder):
    result = load(folder / "src" / "lib.linnet")
    assert [d.message for d in result.diagnostics] == []
    return result.program


def bound(folder, **changes):
    return bind(program(folder), "Model", {**SMALL, **changes})


def random_weights(manifest, seed=0):
    """Seeded weights for every required path: norms near 1, FP8 bytes without NaN, matrices that keep the scale."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for entry in manifest.required():
        draws = torch.randn(entry.shape, generator=generator)
        if entry.dtype == "u8":
            weights[entry.path] = draws.mul(16).clamp(-400, 400).to(torch.float8_e4m3fn).view(torch.uint8)
        elif len(entry.shape) == 1:
            weights[entry.path] = 1 + 0.1 * draws
        elif entry.path.endswith(".scale"):
            weights[entry.path] = (draws.abs() + 0.5) / 300
        else:
            weights[entry.path] = draws * entry.shape[1] ** -0.5
    return weights


def decoded(weights):
    """Plain weights from FP8 bytes and the scales of their blocks of 128 by 128."""
    plain = {}
    for path, tensor in weights.items():
        if tensor.dtype == torch.uint8:
            scale = weights[path.removesuffix("weight") + "scale"]
            blocks = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
            plain[path] = tensor.view(torch.float8_e4m3fn).float() * blocks
        elif not path.endswith(".scale"):
            plain[path] = tensor
    return plain


def tokens(*shape, seed=0):
    return torch.randint(0, SMALL["Vocab"], shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)


def transformers_model(seed, **changes):
    """A small Qwen3 of transformers with seeded random weights."""
    config = Qwen3Config(
        vocab_size=SMALL["Vocab"],
        hidden_size=SMALL["H"],
        num_attention_heads=SMALL["Heads"],
        num_key_value_heads=SMALL["KvHeads"],
        head_dim=SMALL["HeadDim"],
        intermediate_size=SMALL["Inner"],
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        tie_word_embeddings=False,
        attn_implementation="eager",
        **{"num_hidden_layers": SMALL["Layers"], "max_position_embeddings": SMALL["MaxSeq"], **changes},
    )
    model = Qwen3ForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            draws = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * draws if "norm" in name else draws * parameter.shape[-1] ** -0.5)
    return model


def expanded_bindings(root, name, layers):
    bindings = json.loads((root / "nests" / name / "bindings.json").read_text())
    return {
        path.replace("{i}", str(i)): tensor.replace("{i}", str(i))
        for path, tensor in bindings.items()
        for i in range(layers)
    }


@pytest.fixture(scope="module")
def checkpoint(root, tmp_path_factory):
    """A small random Qwen3 of transformers, and its weights in files of the card's names."""
    reference = transformers_model(seed=1)
    folder = tmp_path_factory.mktemp("qwen3")
    files = tomllib.loads((root / "nests" / "qwen3-8b" / "nest.toml").read_text())["weights"]["files"]
    names = sorted(reference.state_dict())
    for i, file in enumerate(files):
        save_file({n: reference.state_dict()[n].contiguous() for n in names[i :: len(files)]}, folder / file)
    return reference, folder


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
def test_logits_and_greedy_tokens_are_transformers(root, checkpoint, numerics):
    reference, folder = checkpoint
    model = nest.load(root / "nests" / "qwen3-8b", weights=folder, generics=SMALL, numerics=numerics, device="cpu")
    prompt = tokens(3, 9)
    with torch.no_grad():
        wanted = reference(prompt.long()).logits
    found = model(prompt)
    assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max()

    with torch.no_grad():
        continued = prompt.long()
        for _ in range(6):
            continued = torch.cat((continued, reference(continued).logits[:, -1:].argmax(-1)), 1)
    first = model.run_entry("prefill", [prompt, 0]).argmax(-1, keepdim=True)
    others = model.run_entry("generate", [first, 9], {"Steps": 5})
    assert torch.cat((first, others), 1).tolist() == continued[:, 9:].tolist()


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
def test_bf16_errs_no_more_than_transformers(root, numerics):
    """Median over 8 seeds of the logits' RMS error against the same weights run in f64."""
    layers, found, theirs = 4, [], []
    instance = bound(root / "nests" / "qwen3-8b", Layers=layers, T="bf16")
    bindings = expanded_bindings(root, "qwen3-8b", layers)
    for seed in range(8):
        reference = transformers_model(seed, num_hidden_layers=layers).bfloat16()
        weights = reference.state_dict()
        text = tokens(2, 16, seed=seed)
        wide = transformers_model(seed, num_hidden_layers=layers).double()
        wide.load_state_dict({name: tensor.double() for name, tensor in weights.items()})
        model = load_model(instance, {p: weights[n] for p, n in bindings.items()}, entry="forward", numerics=numerics)
        with torch.no_grad():
            truth = wide(text.long()).logits
            theirs.append((reference(text.long()).logits - truth).square().mean().sqrt())
        found.append((model(text) - truth).square().mean().sqrt())
    assert torch.stack(found).median() <= 1.05 * torch.stack(theirs).median()


@pytest.mark.parametrize("name", ["qwen3-8b", "qwen3-8b-fp8"])
def test_cached_decoding_equals_forward(root, name):
    instance = bound(root / "nests" / name)
    model = load_model(instance, random_weights(instance.manifest), entry="forward")
    text = tokens(3, 8)
    wanted = model(text)
    torch.testing.assert_close(model.run_entry("next_token", [text]), wanted[:, -1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.run_entry("prefill", [text[:, :5], 0]), wanted[:, 4], rtol=1e-5, atol=1e-5)
    for pos in (5, 6):
        found = model.run_entry("decode", [text[:, pos : pos + 1], pos])
        torch.testing.assert_close(found, wanted[:, pos], rtol=1e-5, atol=1e-5)
    rows = model.run_entry("decode_rows", [text[:, 7:8], [7, 7, 7]])
    torch.testing.assert_close(rows, wanted[:, 7], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
def test_fp8_equals_bf16s_source_over_decoded_weights(root, numerics):
    instance = bound(root / "nests" / "qwen3-8b-fp8")
    weights = random_weights(instance.manifest)
    text = tokens(2, 7)
    quantised = load_model(instance, weights, entry="forward", numerics=numerics)(text)
    plain = load_model(bound(root / "nests" / "qwen3-8b"), decoded(weights), entry="forward")(text)
    assert (quantised - plain).abs().max() <= 1e-5 * plain.abs().max()


def serving_inputs():
    """Inputs of every entry at SMALL, in an order that fills the caches before they are read: three rows of 5, 3 and 4
    tokens; two of them over a pool of pages."""
    text, lengths = tokens(3, 5), [5, 3, 4]
    packed = torch.cat([text[b, :n] for b, n in enumerate(lengths)])
    rows = torch.tensor([b for b, n in enumerate(lengths) for _ in range(n)], dtype=torch.int32)
    positions = torch.cat([torch.arange(n, dtype=torch.int32) for n in lengths])
    last = torch.tensor([4, 7, 11], dtype=torch.int32)
    after = torch.tensor(lengths, dtype=torch.int32)
    targets, weights = torch.roll(packed, -1).long(), torch.linspace(0, 2, 12)
    yield "forward", [text], {}
    yield "next_token", [text], {}
    yield "prefill", [text, 0], {}
    yield "decode", [text[:, :1], 5], {}
    yield "generate", [text[:, :1], 6], {"Steps": 3}
    yield "sample", [text[:, :1], 6, torch.tensor([1, 2]), 0.8], {"Steps": 3}
    yield "generate_until", [text[:, :1], 6, 11], {"MaxNew": 3}
    yield "prefill_slots", [text[:2], torch.tensor([2, 0]), after[:2]], {}
    yield "decode_rows", [text[:, 1:2], after], {}
    yield "prefill_packed", [packed, rows, positions, rows, last], {}
    yield "step_packed", [packed, rows, positions, rows, last, text[:, :1], after], {}
    yield "loss_packed", [packed, positions, rows, targets, weights], {}
    yield "log_probs_packed", [packed, positions, rows, targets], {}
    yield "hidden_packed", [packed, positions, rows], {}


def paged_inputs():
    """The same for the paged entries, at Batch 1: two rows of 5 and 3 tokens in pages (3, 1) and (2, 0) of four."""
    text, table = tokens(8, seed=3), torch.tensor([[3, 1], [2, 0]])
    positions, rows = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2]), torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])
    slots = table[rows, positions // 4] * 4 + positions % 4
    last, after, step = torch.tensor([4, 7]), torch.tensor([5, 3]), tokens(2, 1, seed=4)
    yield "prefill_paged", [text, positions, rows, slots, last, table], {}
    yield "decode_paged", [step, after, table], {}
    yield "step_paged", [text, positions, rows, slots, last, step, after, table], {}


@pytest.mark.parametrize("name", ["qwen3-8b", "qwen3-8b-fp8"])
def test_every_entry_computes_what_the_seeds_does(root, seed, name):
    original = seed / "qwen3-8b-fp8"
    ran = set()
    for batch, inputs in ((3, serving_inputs()), (1, paged_inputs())):
        theirs, ours = bound(original, Batch=batch), bound(root / "nests" / name, Batch=batch)
        weights = random_weights(theirs.manifest)
        reference = load_model(theirs, weights)
        model = load_model(ours, weights if name.endswith("fp8") else decoded(weights))
        assert model.entries == reference.entries
        assert model.state_paths() == reference.state_paths()
        for entry, values, generics in inputs:
            found, wanted = (m.run_entry(entry, values, generics) for m in (model, reference))
            torch.testing.assert_close(
                found, wanted, rtol=2e-5, atol=2e-5, msg=lambda text, entry=entry: f"{entry}: {text}"
            )
            ran.add(entry)
    assert ran == set(model.entries)


def test_the_packages_bind_the_seeds_paths_and_tensors(root, seed):
    card = tomllib.loads((seed / "qwen3-8b-fp8" / "nest.toml").read_text())
    theirs = bind(program(seed / "qwen3-8b-fp8"), "Model", card["generics"]).manifest.by_path()
    ours = bind(program(root / "nests" / "qwen3-8b-fp8"), "Model", card["generics"]).manifest.by_path()

    def facts(manifest):
        return {path: (e.kind, e.shape, e.dtype, e.optional) for path, e in manifest.items()}

    assert facts(ours) == facts(theirs)
    expanded = expanded_bindings(root, "qwen3-8b-fp8", card["generics"]["Layers"])
    assert expanded == json.loads((seed / "qwen3-8b-fp8" / "bindings.json").read_text())


def test_shards_divide_heads_columns_and_vocabulary(root):
    whole = bound(root / "nests" / "qwen3-8b").manifest
    half = bound(root / "nests" / "qwen3-8b", Shards=2).manifest
    for path, axis in (("q_proj", 0), ("k_proj", 0), ("v_proj", 0), ("o_proj", 1)):
        name = f"layers.0.attention.{path}.weight"
        assert half[name].shape[axis] * 2 == whole[name].shape[axis]
    assert half["layers.1.mlp.gate.weight"].shape == (128, 128)
    assert half["lm_head.weight"].shape == (48, 128)
    assert half["embedding.weight"].shape == whole["embedding.weight"].shape
