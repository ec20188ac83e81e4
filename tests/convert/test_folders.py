"""Transformers folders of each family as packages: logits equal transformers', every tensor accounted for."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny_checkpoints import KINDS, POSITIONS, VOCAB, make
from transformers import AutoModelForCausalLM, PreTrainedModel

from linnet import nest
from linnet.convert.config import Config
from linnet.convert.errors import ConvertError, OutputError
from linnet.convert.families import design_of


@pytest.fixture(scope="module")
def models() -> dict[str, PreTrainedModel]:
    return {kind: make(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def folders(models: dict[str, PreTrainedModel], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("folders")
    for kind, model in models.items():
        model.save_pretrained(base / kind)
    return {kind: base / kind for kind in models}


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(0, VOCAB, (1, 40), generator=torch.Generator().manual_seed(1))


def assert_equal_logits(package: Path, model: PreTrainedModel, tokens: torch.Tensor, **settings: Any) -> None:
    """`forward`, `prefill` in two parts and `decode` within 1e-4 of the largest logit of transformers."""
    with torch.no_grad():
        expected = model(tokens).logits
    loaded = nest.load(package, device="cpu", **settings)
    cut = tokens.shape[1] - 2
    results = [
        (loaded(tokens), expected),
        (loaded.run_entry("prefill", [tokens[:, :9], 0]), expected[:, 8]),
        (loaded.run_entry("prefill", [tokens[:, 9:cut], 9]), expected[:, cut - 1]),
        (loaded.run_entry("decode", [tokens[:, cut : cut + 1], cut]), expected[:, cut]),
    ]
    for got, wanted in results:
        assert got.shape == wanted.shape
        assert (got - wanted).abs().max() <= 1e-4 * expected.abs().max()


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_those_of_transformers(
    kind: str, folders: dict[str, Path], models: dict[str, PreTrainedModel], tokens: torch.Tensor, tmp_path: Path
) -> None:
    converted = nest.convert(folders[kind], tmp_path / "made")
    assert converted.dtype == "f32"
    assert_equal_logits(converted.folder, models[kind], tokens)
    report = nest.check(converted.folder, hub=False, strict=True)
    assert report.ok
    assert "full 1 entry" in report.section("smoke").summary
    # Nothing is stored twice, and transformers reads the package too.
    assert (converted.folder / "model.safetensors").samefile(folders[kind] / "model.safetensors")
    again = AutoModelForCausalLM.from_pretrained(converted.folder, attn_implementation="eager")
    with torch.no_grad():
        assert torch.equal(again(tokens).logits, models[kind](tokens).logits)


def test_the_card_says_what_the_config_says(folders: dict[str, Path], tmp_path: Path) -> None:
    package = nest.convert(folders["llama3-rope"], tmp_path / "tiny-llama").folder
    card = nest.check(package, hub=False, smoke="none").card
    assert card is not None
    sizes = {"Vocab": VOCAB, "H": 64, "Heads": 4, "KvHeads": 2, "HeadDim": 16, "Inner": 96, "Layers": 2}
    assert card.generics == {**sizes, "Batch": 1, "MaxSeq": POSITIONS, "T": "f32"}
    assert (card.model.name, card.model.family, card.model.license) == ("tiny-llama", "llama", "other")
    assert "const EPS: f32 = 1e-5\n" in (package / "src" / "norm.linnet").read_text()
    rotary = (package / "src" / "rotary.linnet").read_text()
    for line in ("THETA: f32 = 10000.0", "FACTOR: f32 = 8.0", "HIGH: f32 = 4.0", "ORIGINAL: f32 = 24.0"):
        assert f"const {line}\n" in rotary


def test_older_configs_are_read(
    folders: dict[str, Path], models: dict[str, PreTrainedModel], tokens: torch.Tensor, tmp_path: Path
) -> None:
    """The words of transformers 4: rope_theta beside rope_scaling, torch_dtype."""

    def older(config: dict[str, Any]) -> None:
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope
        config["torch_dtype"] = config.pop("dtype")

    folder = changed(folders["llama3-rope"], tmp_path, older)
    assert_equal_logits(nest.convert(folder, tmp_path / "made").folder, models["llama3-rope"], tokens)


def test_shards_and_another_dtype(models: dict[str, PreTrainedModel], tokens: torch.Tensor, tmp_path: Path) -> None:
    models["qwen2"].save_pretrained(tmp_path / "shards", max_shard_size="100kB")
    kept = nest.convert(tmp_path / "shards", tmp_path / "kept")
    assert len(kept.files) > 1
    assert_equal_logits(kept.folder, models["qwen2"], tokens)
    rounded = nest.convert(tmp_path / "shards", tmp_path / "rounded", dtype="bf16")
    assert rounded.files == kept.files
    stored = {name: value for file in kept.files for name, value in load_file(kept.folder / file).items()}
    written = {name: value for file in kept.files for name, value in load_file(rounded.folder / file).items()}
    assert written.keys() == stored.keys()
    for name, value in stored.items():
        assert torch.equal(written[name], value.to(torch.bfloat16)), name
    index = json.loads((rounded.folder / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in written.values())
    again = AutoModelForCausalLM.from_pretrained(rounded.folder)
    assert again.dtype == torch.bfloat16


def test_what_nothing_reads_is_named_in_the_card(folders: dict[str, Path], tmp_path: Path) -> None:
    """GPT-2's published file: no prefix, no head, and a mask for each layer."""
    weights = {
        name.removeprefix("transformer."): value
        for name, value in load_file(folders["gpt2"] / "model.safetensors").items()
    }
    for layer in range(2):
        weights[f"h.{layer}.attn.bias"] = torch.ones(POSITIONS, POSITIONS, dtype=torch.uint8)
    folder = shutil.copytree(folders["gpt2"], tmp_path / "published")
    save_file(weights, folder / "model.safetensors")
    for dtype in (None, "f16"):
        converted = nest.convert(folder, tmp_path / f"made-{dtype}".lower(), dtype=dtype)
        assert converted.report.ok
        assert 'unused = ["h.*.attn.bias"]\n' in (converted.folder / "nest.toml").read_text()


def test_fp8_weights_stay_bytes(tmp_path: Path) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen3Config(vocab_size=VOCAB, num_hidden_layers=2, head_dim=128, max_position_embeddings=32, **sizes)
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    plain, weights = model.state_dict(), {}
    for name, value in plain.items():
        if "_proj." not in name:
            weights[name] = value.contiguous()
            continue
        rows, columns = value.shape
        blocks = value.float().reshape(rows // 128, 128, columns // 128, 128)
        scales = (blocks.abs().amax((1, 3)) / 448).to(torch.bfloat16)
        bytes_ = (blocks / scales.float()[:, None, :, None]).reshape(rows, columns).to(torch.float8_e4m3fn)
        weights[name], weights[name.replace(".weight", ".weight_scale_inv")] = bytes_, scales
        decoded = bytes_.float().reshape(blocks.shape) * scales.float()[:, None, :, None]
        plain[name] = decoded.reshape(rows, columns)
    folder = tmp_path / "fp8"
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    settings = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    described = {**config.to_dict(), "architectures": ["Qwen3ForCausalLM"], "quantization_config": settings}
    (folder / "config.json").write_text(json.dumps(described))
    converted = nest.convert(folder, tmp_path / "made")
    assert converted.dtype == "bf16"
    reference = Qwen3ForCausalLM(config).eval()
    reference.load_state_dict({name: value.float() for name, value in plain.items()})
    tokens = torch.randint(0, VOCAB, (1, 20), generator=torch.Generator().manual_seed(1))
    assert_equal_logits(converted.folder, reference, tokens, dtype="f32")
    with pytest.raises(ConvertError, match="holds FP8 weights, which keep their dtypes"):
        nest.convert(folder, tmp_path / "again", dtype="f32")
    wide = {name: value.float() if name.endswith("_scale_inv") else value for name, value in weights.items()}
    save_file(wide, folder / "model.safetensors")
    with pytest.raises(ConvertError, match=r"BF16, F32, beside FP8\. Name a checkpoint whose scales are in the dtype"):
        nest.convert(folder, tmp_path / "again")


def test_the_tokenizer_comes_along(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["llama"], tmp_path / "chatty")
    vocab = {"a": 0, "<s>": 1, "</s>": 2}
    described = {
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
        "added_tokens": [{"id": 3, "content": "<end>"}],
    }
    (folder / "tokenizer.json").write_text(json.dumps(described))
    settings = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n# Chatty\n")
    package = nest.convert(folder, tmp_path / "made").folder
    card = nest.check(package, hub=False, smoke="none").card
    assert card is not None
    assert card.tokenizer is not None
    assert (card.tokenizer.file, card.tokenizer.chat_template) == ("tokenizer.json", "chat_template.jinja")
    assert (card.tokenizer.bos, card.tokenizer.eos) == (("<s>",), ("</s>", "<end>"))
    assert card.model.license == "MIT"
    assert (package / "chat_template.jinja").read_text() == "{{ messages }}"
    assert (package / "tokenizer.json").read_text() == json.dumps(described)


def changed(folder: Path, tmp_path: Path, change: Any) -> Path:
    """A copy of the folder with another config.json; `change` is a function of the config, or keys to replace."""
    copy = shutil.copytree(folder, tmp_path / "changed")
    config = json.loads((copy / "config.json").read_text())
    if callable(change):
        change(config)
    else:
        config |= change
    (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("llama", {"model_type": "gemma"}, "names the model_type 'gemma'. Known are gpt2, llama, mistral"),
        ("llama", {"model_type": None}, "names no model_type. Known are"),
        ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "Of llama only LlamaForCausalLM is known"),
        ("llama", lambda config: config.pop("hidden_size"), "has no hidden_size. Add it, or fetch the file again."),
        ("llama", {"num_hidden_layers": "2"}, "gives num_hidden_layers as '2'"),
        ("llama", {"rms_norm_eps": -1}, "gives rms_norm_eps as -1"),
        ("llama", {"tie_word_embeddings": 1}, "gives tie_word_embeddings as 1"),
        ("llama", {"hidden_act": "gelu"}, "gives hidden_act as 'gelu'. Only silu is known."),
        ("llama", {"rope_parameters": [1]}, "gives rope_parameters as"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "by the rule 'yarn'. Of such rules"),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "has no factor"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "rotates only a part of each head"),
        ("llama", {"quantization_config": {"quant_method": "awq"}}, "stores its weights by the method 'awq'"),
        ("mistral", {"sliding_window": 16}, "within a sliding window of 16 positions. Name a model"),
        ("mistral", lambda config: config.pop("sliding_window"), None),
        ("mistral", {"sliding_window": POSITIONS}, None),
        ("qwen2", {"sliding_window": 16, "use_sliding_window": False}, None),
        ("qwen2", {"sliding_window": 16, "use_sliding_window": True}, "within a sliding window of 16 positions"),
        ("qwen2", {"layer_types": ["full_attention", "linear_attention"]}, "has layers of other attention"),
        ("qwen3", {"rope_parameters": {"rope_type": "llama3", **dict.fromkeys(
            ("factor", "low_freq_factor", "high_freq_factor"), 2.0), "original_max_position_embeddings": 8}},
         "For qwen3 no rule is known"),
        ("gpt2", {"activation_function": "relu"}, "gives activation_function as 'relu'"),
        ("gpt2", {"layer_norm_epsilon": 1e-6}, "gives layer_norm_epsilon as 1e-06. Only 1e-05 is known."),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "sets scale_attn_by_inverse_layer_idx"),
        ("llama", {"intermediate_size": 97}, "does not hold what its configuration says: The shapes of layers.0.mlp"),
        ("llama", {"num_hidden_layers": 3}, 'with the tensor "model.layers.2.input_layernorm.weight" and 8 more'),
        ("llama", {"num_hidden_layers": 10**9}, "gives 1000000000 layers. The checkpoint holds only 21 tensors."),
        ("llama", {"num_hidden_layers": 1}, "does not hold what its configuration says"),
    ],
)  # fmt: skip
def test_what_cannot_be_converted_is_named(
    folders: dict[str, Path], tmp_path: Path, kind: str, change: Any, said: str | None
) -> None:
    folder = changed(folders[kind], tmp_path, change)
    before = sorted(path.name for path in tmp_path.iterdir())
    if said is None:
        assert nest.convert(folder, tmp_path / "made").report.ok
        return
    with pytest.raises(ConvertError) as raised:
        nest.convert(folder, tmp_path / "made")
    assert said in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


ODD = [
    None,
    -1,
    0,
    1,
    3,
    10**9,
    2.5,
    float("nan"),
    True,
    False,
    "x",
    "",
    [],
    [1],
    ["x"],
    {},
    {"rope_type": "x"},
    {"a": []},
]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(KINDS), st.data())
def test_odd_configs_are_designs_or_sentences(folders: dict[str, Path], kind: str, data: Any) -> None:
    described = json.loads((folders[kind] / "config.json").read_text())
    keys = [*described, "rope_scaling", "quantization_config", "sliding_window", "layer_types", "n_inner"]
    for key in data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3)):
        described[key] = data.draw(st.sampled_from(ODD))
    names = set(load_file(folders[kind] / "model.safetensors"))
    with contextlib.suppress(ConvertError):
        design = design_of(Config(described, "config.json"), names)
        assert all(isinstance(value, int) and value >= 1 for value in design.generics.values())
        assert all(math.isfinite(value) for found in design.constants.values() for value in found.values())


def damage_bias(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(64)
    save_file(weights, folder / "model.safetensors")


def damage_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "one.safetensors"}}))


def damage_escaping(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../one.safetensors"}}))


def damage_pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def damage_mixed(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"].to(torch.bfloat16)
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_bias, 'with the tensor "model.layers.1.self_attn.q_proj.bias", which the checkpoint does not hold'),
        (damage_index, "one.safetensors, which"),
        (damage_escaping, 'names the file "../one.safetensors", which is no plain name'),
        (damage_pickled, "pytorch_model.bin could run code when it is read"),
        (damage_mixed, "holds tensors in several dtypes, BF16, F32. Choose one with --dtype."),
        (lambda folder: (folder / "model.safetensors").unlink(), "has neither model.safetensors nor"),
        (lambda folder: (folder / "config.json").unlink(), "so "),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is not JSON at line 1"),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json is not a JSON object"),
        (lambda folder: (folder / "tokenizer.json").write_text("NaN"), "tokenizer.json is not JSON"),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("{}"), "has no weight_map of file names"),
    ],
)
def test_a_damaged_folder_leaves_nothing(folders: dict[str, Path], tmp_path: Path, damage: Any, said: str) -> None:
    folder = shutil.copytree(folders["llama"], tmp_path / "damaged")
    damage(folder)
    with pytest.raises(ConvertError) as raised:
        nest.convert(folder, tmp_path / "made")
    assert said in str(raised.value)
    assert os.listdir(tmp_path) == ["damaged"]


def test_links_of_a_download_cache_are_followed(folders: dict[str, Path], tmp_path: Path) -> None:
    """Such a cache holds each file under its digest, and a snapshot links to it."""
    snapshot = tmp_path / ("c0ffee" * 6 + "cafe")
    snapshot.mkdir()
    for path in folders["llama"].iterdir():
        (snapshot / path.name).symlink_to(path)
    package = nest.convert(snapshot, tmp_path / "made").folder
    assert not any(path.is_symlink() for path in package.rglob("*"))
    report = nest.check(package, hub=False)
    assert report.ok
    assert report.card is not None
    assert report.card.model.title == "made"


def test_mixed_dtypes_become_one(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["llama"], tmp_path / "mixed")
    damage_mixed(folder)
    assert nest.convert(folder, tmp_path / "made", dtype="f32").report.ok


def test_weights_with_nan_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["llama"], tmp_path / "nan")
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][3] = float("nan")
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ConvertError, match=r'The tensor "model\.norm\.weight" holds a number that bf16 cannot'):
        nest.convert(folder, tmp_path / "made", dtype="bf16")


def test_output_folders_that_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    source = folders["llama"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "file").touch()
    for output, said in (
        ("full", "full is not empty. Name another with -o."),
        ("file", "file is not a folder"),
        ("file/under", "file is not a folder"),
        ("Name_with", "cannot be a package's: it may hold only"),
    ):
        with pytest.raises(OutputError) as raised:
            nest.convert(source, tmp_path / output)
        assert said in str(raised.value)
    with pytest.raises(OutputError, match="dtype='f8' is not known"):
        nest.convert(source, tmp_path / "made", dtype="f8")
    assert sorted(os.listdir(tmp_path)) == ["file", "full"]
    (tmp_path / "empty").mkdir()
    for output in ("empty", "deep/er/made"):
        assert nest.convert(source, tmp_path / output).report.ok


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"There is no file or folder .*nowhere\. Check the path\."):
        nest.convert(tmp_path / "nowhere", tmp_path / "made")
