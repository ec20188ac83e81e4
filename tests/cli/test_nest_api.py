"""`nest.load`, `nest.check` and `nest.index`: the rooms joined."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_server import running
from safetensors.torch import save_file

from linnet import checking, nest
from linnet.language.program.binding import BindError
from linnet.registry.errors import CardError, HubError, PackageError, RegistryError
from linnet.runner.errors import InputError, ModeError, UnknownEntryError, WeightsError
from linnet.runner.smoke import FAULTS

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Tensors = dict[str, torch.Tensor]


def expected(tensors: Tensors, x: torch.Tensor) -> torch.Tensor:
    """What the tiny package computes, in torch."""
    hidden = torch.relu(x @ tensors["fc1.weight"].T + tensors["fc1.bias"])
    return hidden @ tensors["fc2.weight"].T


@pytest.mark.parametrize("numerics", nest.NUMERICS)
def test_load_runs_the_entry_of_the_card(tiny: Path, tensors: Tensors, numerics: str) -> None:
    model = nest.load(tiny, numerics=numerics, device="cpu")
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model(x), expected(tensors, x))
    torch.testing.assert_close(model.run_entry("forward", [x]), expected(tensors, x))
    assert model.generics == {"In": 3, "Hidden": 4, "T": "f32"}
    assert list(model.entries) == ["forward"]
    assert sorted(model.state_dict()) == ["down.weight", "up.bias", "up.weight"]
    assert "Linear" in str(model)


def test_load_takes_weights_from_elsewhere(tiny: Path, tensors: Tensors, tmp_path: Path) -> None:
    (tiny / "model.safetensors").unlink()
    doubled = {name: 2 * tensor for name, tensor in tensors.items()}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    save_file(doubled, elsewhere / "model.safetensors")
    x = torch.ones(1, 3)
    for weights in (elsewhere, str(elsewhere / "model.safetensors")):
        torch.testing.assert_close(nest.load(tiny, weights=weights, device="cpu")(x), expected(doubled, x))
    with pytest.raises(PackageError, match=r"model\.safetensors is not in"):
        nest.load(tiny, weights=tmp_path)
    with pytest.raises(PackageError, match=r"model\.safetensors"):
        nest.load(tiny)


def test_load_converts_where_a_dtype_is_asked_for(tiny: Path, tensors: Tensors) -> None:
    x = torch.ones(2, 3, dtype=torch.float64)
    wide = {name: tensor.double() for name, tensor in tensors.items()}
    for dtype in ("f64", torch.float64):
        model = nest.load(tiny, dtype=dtype, device="cpu")
        torch.testing.assert_close(model(x), expected(wide, x), rtol=1e-12, atol=0)
        assert model.generics["T"] == "f64"
    with pytest.raises(nest.NestError, match="'i32' is not a floating dtype"):
        nest.load(tiny, dtype="i32")


def test_load_on_meta_needs_no_weights(tiny: Path) -> None:
    (tiny / "model.safetensors").unlink()
    model = nest.load(tiny, device="meta")
    out = model(torch.empty(7, 3, device="meta"))
    assert (out.shape, out.device.type) == ((7, 3), "meta")
    # The optional weights are those that the bindings name.
    assert sorted(model.state_dict()) == ["down.weight", "up.bias", "up.weight"]


def test_load_trains_where_it_is_asked_to(tiny: Path) -> None:
    model = nest.load(tiny, trainable=True, device="cpu")
    model(torch.ones(2, 3)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_load_with_other_generics_checks_the_weights_against_them(tiny: Path) -> None:
    with pytest.raises(RegistryError, match=r"up\.weight.*f32 \[9, 3\].*F32 \[4, 3\]"):
        nest.load(tiny, generics={"Hidden": 9})
    model = nest.load(tiny, generics={"Hidden": 9}, device="meta")
    assert model.generics["Hidden"] == 9
    with pytest.raises(BindError, match="Depth"):
        nest.load(tiny, generics={"Depth": 9})


def test_weights_that_do_not_fit_other_generics_say_so(tiny: Path) -> None:
    with pytest.raises(RegistryError, match=r"given for Hidden is not the card's: leave it out, or name weights"):
        nest.load(tiny, generics={"Hidden": 9})
    with pytest.raises(RegistryError, match=r"to convert weights as they load, give dtype= \(--dtype\) in its place"):
        nest.load(tiny, generics={"T": "f64"})
    assert nest.load(tiny, dtype="f64", device="cpu")(torch.ones(2, 3, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"backend": "jax"}, "backend='jax' is not known"),
        ({"device": "quantum"}, "device='quantum' is not known to torch; this machine has cpu"),
        ({"numerics": "loose"}, "numerics='loose' is not known; write one of exact, equivalent, fast, engine"),
        ({"capacity": 0}, "capacity=0 is not a count of positions from 1 up"),
        ({"capacity": 8}, r"capacity=8 is the size of a cache \(MaxSeq\), which tiny.* does not have"),
        ({"compile": "fastest"}, "compile='fastest' is not known; write True, False,"),
        ({"compile": "reduce-overhead", "device": "cpu"}, "replays CUDA graphs, and the device is cpu"),
        ({"fp8": "sometimes"}, "fp8='sometimes' is not known; write 'stream' or 'decoded'"),
    ],
)
def test_load_refuses_what_it_cannot_do(tiny: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises((nest.NestError, ModeError), match=said):
        nest.load(tiny, **arguments)


def test_load_names_what_is_wrong(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="no package of that name"):
        nest.load("no-such-model")
    with pytest.raises(PackageError, match="There is no folder"):
        nest.load("./absent")
    with pytest.raises(PackageError, match=r"nest\.toml is not in|nest\.toml"):
        nest.load(tmp_path)

    source = (tiny / "lib.linnet").read_text()
    (tiny / "lib.linnet").write_text(source.replace("relu(", "rleu("))
    with pytest.raises(nest.SourceError, match=r"lib\.linnet:13:\d+: E1201") as caught:
        nest.load(tiny)
    assert [item.code for item in caught.value.diagnostics if item.severity == "error"] == ["E1201"]
    (tiny / "lib.linnet").write_text(source)

    card = (tiny / "nest.toml").read_text()
    (tiny / "nest.toml").write_text(card.replace('name = "tiny"', 'name = "other"'))
    with pytest.raises(CardError, match="not the name of its folder"):
        nest.load(tiny)
    (tiny / "nest.toml").write_text(card)

    (tiny / "bindings.json").write_text('{"up.wieght": "fc1.weight"}')
    with pytest.raises(RegistryError, match=r"up\.weight"):
        nest.load(tiny)


@pytest.mark.skipif(torch.cuda.is_available(), reason="it is about a machine without a GPU")
def test_load_says_that_a_device_is_not_here(tiny: Path) -> None:
    for device in ("cuda", torch.device("cuda", 1), "vulkan"):
        said = r"^device='[a-z:1]+' cannot be used here \([^()]+\); this machine has cpu: name one of them, or leave"
        with pytest.raises(nest.DeviceError, match=said):
            nest.load(tiny, device=device)
    with pytest.raises(nest.DeviceError, match=r"'gpu' is not known to torch; this machine has cpu and meta$"):
        nest.load(tiny, device="gpu")


def test_the_devices_of_a_machine_are_counted(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    with pytest.raises(nest.DeviceError, match=r"this machine has cpu, cuda:0, cuda:1: name one of them"):
        nest.load(tiny, device="vulkan")


def test_load_names_a_source_that_is_no_file(tiny: Path) -> None:
    (tiny / "lib.linnet").unlink()
    with pytest.raises(PackageError, match=r'The file "lib\.linnet" is not in the package\. Add lib\.linnet\.'):
        nest.load(tiny)
    (tiny / "lib.linnet").mkdir()
    with pytest.raises(PackageError, match=r'The file "lib\.linnet" is not a plain file'):
        nest.load(tiny)


def test_load_names_what_is_too_long_to_be_a_path(tiny: Path) -> None:
    for name in ("x" * 5000, "./" + "x" * 5000, tiny / ("x" * 5000)):
        with pytest.raises(PackageError):
            nest.load(name)


@pytest.fixture
def quantised(tiny: Path, tensors: Tensors) -> Path:
    """The tiny package with an FP8 layer: E4M3 bytes of both signs, without NaN."""
    source = (tiny / "lib.linnet").read_text()
    source = source.replace("use std.nn.linear::{Linear}", "use std.nn.linear::{Linear}\nuse std.quant::{Fp8Linear}")
    (tiny / "lib.linnet").write_text(source.replace("sub down: Linear<", "sub down: Fp8Linear<"))
    (tiny / "bindings.json").write_text(
        '{"up.weight": "fc1.weight", "up.bias": "fc1.bias", "down.weight": "fc2.weight", "down.scale": "fc2.scale"}'
    )
    write_fp8(tiny, tensors, torch.linspace(-400, 400, 12).reshape(3, 4).to(torch.float8_e4m3fn))
    return tiny


def write_fp8(folder: Path, tensors: Tensors, weight: torch.Tensor) -> None:
    scale = torch.tensor([[0.5], [0.25], [0.125]])
    save_file({**tensors, "fc2.weight": weight, "fc2.scale": scale}, folder / "model.safetensors")


@pytest.mark.parametrize("numerics", nest.NUMERICS)
def test_load_runs_fp8(quantised: Path, tensors: Tensors, numerics: str) -> None:
    weight = torch.linspace(-400, 400, 12).reshape(3, 4).to(torch.float8_e4m3fn).float()
    plain = {**tensors, "fc2.weight": weight * torch.tensor([[0.5], [0.25], [0.125]])}
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(nest.load(quantised, numerics=numerics, device="cpu")(x), expected(plain, x))


@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_load_refuses_fp8_that_is_not_a_number(quantised: Path, tensors: Tensors, byte: int) -> None:
    bits = torch.full((3, 4), 0x30, dtype=torch.uint8)
    bits[1, 2] = byte
    write_fp8(quantised, tensors, bits.view(torch.float8_e4m3fn))
    with pytest.raises(WeightsError, match=r"tensor fc2\.weight of .*model\.safetensors holds 1 E4M3 NaN byte"):
        nest.load(quantised, device="cpu")
    section = nest.check(quantised, hub=False).section("smoke")
    assert [(f.kind, f.help) for f in section.findings] == [
        ("smoke.full", "Fetch the weights again, or correct the bindings.")
    ]
    assert "fc2.weight" in section.findings[0].message


def test_load_words_bad_inputs_with_the_signature(tiny: Path) -> None:
    model = nest.load(tiny, device="cpu")
    with pytest.raises(InputError, match=r"forward<B: Dim>\(x: Tensor\[B, In; T\]\)"):
        model(torch.ones(2, 5))
    with pytest.raises(UnknownEntryError, match=r"'backward'.*forward"):
        model.run_entry("backward", [torch.ones(2, 3)])


def test_load_verifies_the_digest_that_a_card_gives(tiny: Path) -> None:
    digest = hashlib.sha256((tiny / "model.safetensors").read_bytes()).hexdigest()
    with (tiny / "nest.toml").open("a") as card:
        card.write(f'\n[weights.sha256]\n"model.safetensors" = "{digest}"\n')
    assert nest.load(tiny, device="cpu").generics["In"] == 3
    data = bytearray((tiny / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (tiny / "model.safetensors").write_bytes(data)
    with pytest.raises(PackageError, match=f"has the sha256 [0-9a-f]{{64}}, but the card pins {digest}"):
        nest.load(tiny)


@pytest.fixture
def hub(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A hub with the repository `owner/tiny`, which holds the tiny package and its weights."""
    from huggingface_hub import constants

    shutil.copytree(tiny, tmp_path / "hub" / "owner" / "tiny" / COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    with running(tmp_path / "hub") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def test_load_takes_a_repository_of_the_hub(hub: Any, tensors: Tensors) -> None:
    x = torch.ones(1, 3)
    torch.testing.assert_close(nest.load("owner/tiny", device="cpu")(x), expected(tensors, x))
    name = f"owner/tiny@{COMMIT}"
    torch.testing.assert_close(nest.load(name, device="cpu")(x), expected(tensors, x))
    hub.reset()
    torch.testing.assert_close(nest.load(name, device="cpu", offline=True)(x), expected(tensors, x))
    assert hub.traffic.requests == []


def test_load_tells_the_failures_of_the_hub_apart(hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HubError, match="no repository owner/other"):
        nest.load(f"owner/other@{COMMIT}")
    with pytest.raises(HubError, match="no commit"):
        nest.load(f"owner/tiny@{'f' * 40}")
    with pytest.raises(HubError, match="not on this machine"):
        nest.load(f"owner/tiny@{COMMIT}", offline=True)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    # The Hub's client waits between its attempts.
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(HubError, match="No connection"):
        nest.load(f"owner/tiny@{COMMIT}")


def test_load_fetches_weights_at_the_pinned_commit(
    hub: Any, tiny: Path, tensors: Tensors, edit_card: Callable[[str, str], None]
) -> None:
    (tiny / "model.safetensors").unlink()
    edit_card("[weights]\n", f'[weights]\nrepo = "owner/tiny"\nrevision = "{COMMIT}"\n')
    with pytest.raises(PackageError, match="is not on this machine, and offline is set"):
        nest.load(tiny, offline=True)
    x = torch.ones(1, 3)
    torch.testing.assert_close(nest.load(tiny, device="cpu")(x), expected(tensors, x))
    hub.reset()
    torch.testing.assert_close(nest.load(tiny, device="cpu", offline=True)(x), expected(tensors, x))
    assert hub.traffic.requests == []
    edit_card(COMMIT, "f" * 40)
    with pytest.raises(HubError, match=f"no commit {'f' * 40}"):
        nest.load(tiny)


@pytest.fixture
def edit_card(tiny: Path) -> Callable[[str, str], None]:
    """`edit_card(old, new)` replaces text of the tiny package's card."""

    def edit(old: str, new: str) -> None:
        text = (tiny / "nest.toml").read_text()
        assert old in text
        (tiny / "nest.toml").write_text(text.replace(old, new))

    return edit


def test_check_and_index_are_plain_values(tiny: Path) -> None:
    report = nest.check(tiny, hub=False, smoke="none")
    assert report.ok
    assert report.name == "tiny"
    assert [record["name"] for record in nest.index(tiny.parent)] == ["tiny"]
    with pytest.raises(nest.NestError, match="smoke='big' is not known"):
        nest.check(tiny, smoke="big")


def smoke_help(package: Path, smoke: str) -> list[tuple[str, str]]:
    """The kind and the advice of what the smoke test finds."""
    return [(f.kind, f.help) for f in nest.check(package, hub=False, smoke=smoke).section("smoke").findings]


@pytest.mark.parametrize(
    ("entry", "advice"),
    [
        ("none_fits<S: Dim>(x: Tensor[S; f32]) -> Tensor[S; f32] where S * S == 2 { return x }", "Widen the `where`"),
        ("flat() -> Tensor[3; f32] { return fill<f32>([3], 2.0) }", "Look through the entry's arithmetic"),
        (
            "chosen(x: f32, c: bool) -> f32 { let y: f32? = if c { some(x) } else { none } "
            "return match y { some(v) => v none => x } }",
            "Change the source: what decides a graph's structure must be known",
        ),
        (
            "outside() -> Tensor[5; i64] { let t = iota<i64>(2) let at = iota<i64>(5) let y[i] = t[at[i]] return y }",
            "Keep the index or divisor that it names in range",
        ),
    ],
)
def test_advice_follows_from_the_fault(tiny: Path, entry: str, advice: str) -> None:
    source = (tiny / "lib.linnet").read_text()
    (tiny / "lib.linnet").write_text(source.rstrip().removesuffix("}") + f"    pub entry {entry}\n}}\n")
    ((kind, help),) = smoke_help(tiny, "small")
    assert kind == "smoke.small"
    assert help.startswith(advice)


def test_advice_follows_from_the_stage(tiny: Path, tensors: Tensors) -> None:
    assert smoke_help(tiny, "full") == []
    save_file({name: torch.zeros_like(tensor) for name, tensor in tensors.items()}, tiny / "model.safetensors")
    ((kind, help),) = smoke_help(tiny, "full")
    assert kind == "smoke.full"
    assert help.startswith("Compare the source and the bindings with the model that the checkpoint was made for")


def test_there_is_advice_for_every_fault() -> None:
    for stage in ("meta", "small", "full"):
        for _, fault in FAULTS:
            assert checking._smoke_help(stage, fault).endswith(".")


def test_packages_that_ship_are_found_by_name() -> None:
    model = nest.load("qwen3-8b-fp8", device="meta")
    assert model.generics["Layers"] == 36
    assert "prefill" in model.entries


def test_weights_that_are_not_there_are_named(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match=r"There is no file or folder .*nope\.safetensors to take weights from\."):
        nest.load(tiny, weights=tmp_path / "nope.safetensors")


def test_inputs_by_name_are_for_run_entry(tiny: Path) -> None:
    model = nest.load(tiny, device="cpu")
    x = torch.ones(1, 3)
    for named in ({"x": x}, {"generics": {"B": 1}}):
        with pytest.raises(
            InputError, match=r"cannot be given by name here: use model\.run_entry\('forward', \.\.\.\)"
        ):
            model(**named)
    assert torch.equal(model.run_entry("forward", {"x": x}), model(x))
