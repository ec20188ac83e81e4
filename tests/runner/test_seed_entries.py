"""The seed package's seventeen entries at small generics, in f32: each way of computing a token agrees with `forward`.

Logits agree within 1e-4 of their largest magnitude; the numbers that are compared come from random weights.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from linnet.language.program.binding import BoundProgram, bind
from linnet.language.program.checked import Program
from linnet.runner.errors import IndexRangeError
from linnet.runner.torch.module import Model, load_model
from linnet.runner.torch.weights import random_weights

VOCAB, MAX_SEQ, PAGE = 64, 32, 4
SMALL = {
    "Vocab": VOCAB, "H": 128, "Heads": 4, "KvHeads": 2, "HeadDim": 64, "Inner": 256, "Layers": 2,
    "Batch": 2, "MaxSeq": MAX_SEQ, "T": "f32", "PageSize": PAGE,
}  # fmt: skip
ENTRIES = (
    "forward next_token decode prefill decode_rows prefill_slots loss_packed log_probs_packed hidden_packed "
    "prefill_packed step_packed decode_paged prefill_paged step_paged generate sample generate_until"
)
LENGTHS = (7, 4)
Load = Callable[..., Model]


@pytest.fixture(scope="module")
def bound(seed_program: Program) -> BoundProgram:
    return bind(seed_program, "Model", SMALL)


@pytest.fixture(scope="module")
def pool(seed_program: Program) -> BoundProgram:
    """Paged serving: one row, whose positions are a pool of pages."""
    return bind(seed_program, "Model", {**SMALL, "Batch": 1})


@pytest.fixture(
    params=[(numerics, compiled) for numerics in ("exact", "equivalent", "fast") for compiled in (False, True)],
    ids=lambda param: f"{param[0]}-{'compiled' if param[1] else 'interpreted'}",
)
def load(request: pytest.FixtureRequest) -> Load:
    numerics, compiled = request.param

    def make(bound: BoundProgram, **options: bool) -> Model:
        weights = random_weights(bound.manifest, 1)
        options = options if options.get("trainable") else {**options, "compile": compiled}
        # Larger than training would leave them, so that tokens differ clearly.
        weights["embedding.weight"] = weights["embedding.weight"] * 20
        return load_model(bound, weights, entry="forward", numerics=numerics, **options)

    return make


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()


def draw(*shape: int) -> torch.Tensor:
    return torch.randint(0, VOCAB, shape, generator=torch.Generator().manual_seed(7), dtype=torch.int32)


def ids(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def packed(prompts: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Prompts end to end, each token with its position and its prompt's number."""
    return {
        "tokens": torch.cat(prompts),
        "positions": torch.cat([torch.arange(len(p), dtype=torch.int32) for p in prompts]),
        "segments": torch.cat([torch.full((len(p),), i, dtype=torch.int32) for i, p in enumerate(prompts)]),
    }


def ends(prompts: list[torch.Tensor]) -> torch.Tensor:
    """The place of each prompt's last token in the pack."""
    return torch.tensor([len(p) for p in prompts]).cumsum(0).int() - 1


def last_logits(model: Model, prompt: torch.Tensor) -> torch.Tensor:
    """Logits after a prompt, from `forward` on the prompt alone."""
    return model(prompt[None])[0, -1]


def after_one_more(model: Model, prompts: list[torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """Logits after each prompt and one token more."""
    return torch.stack([last_logits(model, torch.cat((p, t[None]))) for p, t in zip(prompts, tokens, strict=True)])


@pytest.fixture
def prompts() -> list[torch.Tensor]:
    tokens = draw(2, 16)
    return [tokens[i, :n] for i, n in enumerate(LENGTHS)]


def test_the_seed_has_seventeen_entries(bound: BoundProgram) -> None:
    assert list(bound.entries()) == ENTRIES.split()


def test_next_token_is_forwards_last_position(bound: BoundProgram, load: Load) -> None:
    model, tokens = load(bound), draw(3, 9)
    close(model.run_entry("next_token", [tokens]), model(tokens)[:, -1])


def test_decode_step_by_step_equals_forward(bound: BoundProgram, load: Load) -> None:
    model, tokens = load(bound), draw(2, 10)
    expected = model(tokens)
    for i in range(10):
        close(model.run_entry("decode", [tokens[:, i : i + 1], i]), expected[:, i])


def test_prefill_then_decode_equals_forward(bound: BoundProgram, load: Load) -> None:
    model, tokens = load(bound), draw(2, MAX_SEQ)
    expected = model(tokens)
    close(model.run_entry("prefill", [tokens[:, :9], 0]), expected[:, 8])
    close(model.run_entry("prefill", [tokens[:, 9:20], 9]), expected[:, 19])
    for i in range(20, MAX_SEQ):
        close(model.run_entry("decode", [tokens[:, i : i + 1], i]), expected[:, i])


def test_states_reset_to_zeros(bound: BoundProgram, load: Load) -> None:
    model, tokens = load(bound), draw(2, 6)
    first = model.run_entry("decode", [tokens[:, :1], 3])
    model.run_entry("prefill", [tokens, 0])
    assert not torch.equal(model.run_entry("decode", [tokens[:, :1], 3]), first)
    model.reset_state()
    assert torch.equal(model.run_entry("decode", [tokens[:, :1], 3]), first)


def test_tokens_and_positions_outside_are_errors_and_change_nothing(bound: BoundProgram, load: Load) -> None:
    model, tokens = load(bound), draw(2, 6)
    expected = model.run_entry("prefill", [tokens, 0])
    for entry, inputs, message in (
        ("forward", [[[0, VOCAB]]], "entry forward: id 64 is outside the embedding table of 64 rows"),
        ("decode", [tokens[:, :1], MAX_SEQ], "entry decode: position 32 is outside"),
        ("decode", [tokens[:, :1], -1], "entry decode: position -1 is outside"),
        ("prefill", [tokens, MAX_SEQ - 5], "entry prefill: position 32 is outside"),
        ("decode_rows", [tokens[:, :1], [3, MAX_SEQ]], "entry decode_rows: position 32 is outside"),
        ("prefill_slots", [tokens, [0, 2], [6, 6]], "entry prefill_slots: position 2 is outside the cache"),
        ("loss_packed", [[1], [0], [0], [VOCAB], [1.0]], "entry loss_packed: position 64 is outside"),
    ):
        with pytest.raises(IndexRangeError) as caught:
            model.run_entry(entry, inputs)
        assert message in str(caught.value)
    after = model.run_entry("decode", [tokens[:, :1], 6])
    model.reset_state()
    assert torch.equal(model.run_entry("prefill", [tokens, 0]), expected)
    assert torch.equal(model.run_entry("decode", [tokens[:, :1], 6]), after)


def test_decode_rows_at_different_lengths(bound: BoundProgram, load: Load) -> None:
    model, tokens = load(bound), draw(2, 16)
    expected = model(tokens)
    # Row 0 is `gap` positions ahead of row 1 all along.
    model.run_entry("prefill", [tokens[:, :4], 0])
    gap = 5
    for i in range(4, 4 + gap):
        stepped = model.run_entry("decode_rows", [tokens[:, i : i + 1], ids(i, MAX_SEQ - 1)])
        close(stepped[0], expected[0, i])
    for i in range(4, 10):
        token = torch.stack((tokens[0, i + gap], tokens[1, i]))[:, None]
        stepped = model.run_entry("decode_rows", [token, ids(i + gap, i)])
        close(stepped, torch.stack((expected[0, i + gap], expected[1, i])))


def test_prefill_slots_then_decode_rows(bound: BoundProgram, load: Load, prompts: list[torch.Tensor]) -> None:
    model = load(bound)
    padded = torch.zeros(2, max(LENGTHS), dtype=torch.int32)
    for i, prompt in enumerate(prompts):
        padded[i, : len(prompt)] = prompt
    # The first prompt goes to row 1, the second to row 0.
    logits = model.run_entry("prefill_slots", [padded, ids(1, 0), ids(*LENGTHS)])
    close(logits, torch.stack([last_logits(model, p) for p in prompts]))
    token = draw(2)
    stepped = model.run_entry("decode_rows", [token.flip(0)[:, None], ids(*LENGTHS).flip(0)])
    close(stepped.flip(0), after_one_more(model, prompts, token))


def test_prefill_packed_then_decode_rows(bound: BoundProgram, load: Load, prompts: list[torch.Tensor]) -> None:
    model, pack = load(bound), packed(prompts)
    # Rows are exchanged; the pack ends in padding with a segment of its own, written where nobody reads.
    rows = 1 - pack["segments"]
    tokens, positions = torch.cat((pack["tokens"], ids(3, 3))), torch.cat((pack["positions"], ids(*[MAX_SEQ - 1] * 2)))
    rows, segments = torch.cat((rows, ids(0, 0))), torch.cat((pack["segments"], ids(9, 9)))
    logits = model.run_entry("prefill_packed", [tokens, rows, positions, segments, ends(prompts)])
    close(logits, torch.stack([last_logits(model, p) for p in prompts]))
    token = draw(2)
    stepped = model.run_entry("decode_rows", [token.flip(0)[:, None], ids(*LENGTHS).flip(0)])
    close(stepped.flip(0), after_one_more(model, prompts, token))


def test_step_packed_is_a_prefill_and_a_step(bound: BoundProgram, load: Load, prompts: list[torch.Tensor]) -> None:
    model, running = load(bound), draw(2, 8)[1]
    # Row 0 is decoding; the prompt joins in row 1, whose own step is idle.
    both = running.expand(2, 8)
    model.run_entry("prefill", [both[:, :6], 0])
    prompt = prompts[0]
    pack = packed([prompt])
    rows = torch.ones_like(pack["tokens"])
    steps = torch.stack((running[6], torch.tensor(0, dtype=torch.int32)))[:, None]
    logits = model.run_entry(
        "step_packed",
        [pack["tokens"], rows, pack["positions"], pack["segments"], ids(6, 6), steps, ids(6, MAX_SEQ - 1)],
    )
    assert logits.shape == (4, VOCAB)
    close(logits[0], last_logits(model, prompt))
    close(logits[2], last_logits(model, running[:7]))
    # Both go on from there.
    token = draw(1)[0]
    stepped = model.run_entry("decode_rows", [torch.stack((running[7], token))[:, None], ids(7, len(prompt))])
    close(stepped[0], last_logits(model, running))
    close(stepped[1], last_logits(model, torch.cat((prompt, token[None]))))


# The pages of two rows, neither in order nor side by side; page 0 is where nobody reads.
TABLE = torch.tensor([[3, 1, 6], [5, 2, 0]], dtype=torch.int32)


def slots_of(rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return TABLE[rows.long(), (positions // PAGE).long()] * PAGE + positions % PAGE


def test_paged_entries_equal_forward(pool: BoundProgram, load: Load, prompts: list[torch.Tensor]) -> None:
    model, pack = load(pool), packed(prompts)
    rows = pack["segments"]
    inputs = [pack["tokens"], pack["positions"], rows, slots_of(rows, pack["positions"]), ends(prompts), TABLE]
    close(model.run_entry("prefill_paged", inputs), torch.stack([last_logits(model, p) for p in prompts]))
    rest = draw(2, 3)
    for i in range(3):
        stepped = model.run_entry("decode_paged", [rest[:, i : i + 1], ids(*LENGTHS) + i, TABLE])
        expected = [last_logits(model, torch.cat((p, rest[row, : i + 1]))) for row, p in enumerate(prompts)]
        close(stepped, torch.stack(expected))


def test_prefill_paged_continues_in_chunks(pool: BoundProgram, load: Load) -> None:
    model, prompt = load(pool), draw(11)
    for start, stop in ((0, 5), (5, 11)):
        positions = torch.arange(start, stop, dtype=torch.int32)
        rows = torch.zeros_like(positions)
        last = ids(stop - start - 1, 0)
        logits = model.run_entry(
            "prefill_paged", [prompt[start:stop], positions, rows, slots_of(rows, positions), last, TABLE]
        )
        close(logits[0], last_logits(model, prompt[:stop]))


def test_step_paged_is_a_prefill_and_a_step(pool: BoundProgram, load: Load, prompts: list[torch.Tensor]) -> None:
    model, running = load(pool), draw(9)
    positions = torch.arange(8, dtype=torch.int32)
    rows = torch.zeros_like(positions)
    model.run_entry("prefill_paged", [running[:8], positions, rows, slots_of(rows, positions), ids(7, 7), TABLE])
    prompt = prompts[1]
    pack = packed([prompt])
    rows = torch.ones_like(pack["tokens"])
    # Row 1's own step is idle: its table is asked for position 11, in page 0.
    steps, at = torch.stack((running[8], torch.tensor(0, dtype=torch.int32)))[:, None], ids(8, 11)
    logits = model.run_entry(
        "step_paged",
        [pack["tokens"], pack["positions"], rows, slots_of(rows, pack["positions"]), ids(3, 3), steps, at, TABLE],
    )
    assert logits.shape == (4, VOCAB)
    close(logits[0], last_logits(model, prompt))
    close(logits[2], last_logits(model, running))


def greedy(model: Model, prompt: torch.Tensor, steps: int) -> torch.Tensor:
    """What argmax by hand produces after [Batch, S] tokens."""
    for _ in range(steps):
        prompt = torch.cat((prompt, model(prompt)[:, -1].argmax(-1, keepdim=True).int()), dim=1)
    return prompt[:, -steps:]


def test_generate_equals_argmax_by_hand(bound: BoundProgram, load: Load) -> None:
    model, prompt = load(bound), draw(2, 5)
    expected = greedy(model, prompt, 8)
    model.run_entry("prefill", [prompt[:, :4], 0])
    produced = model.run_entry("generate", [prompt[:, 4:], 4], generics={"Steps": 8})
    assert produced.dtype == torch.int32
    assert torch.equal(produced, expected)


def test_generate_until_stops_at_eos(bound: BoundProgram, load: Load) -> None:
    model = load(bound)
    prompt = draw(1, 5).expand(2, 5)
    expected = greedy(model, prompt, 8)
    eos = int(expected[0, 3])
    first = expected[0].tolist().index(eos)
    model.run_entry("prefill", [prompt[:, :4], 0])
    produced, count = model.run_entry("generate_until", [prompt[:, 4:], 4, eos], generics={"MaxNew": 8})
    assert count.item() == first + 1
    assert torch.equal(produced[:, : first + 1], expected[:, : first + 1])
    assert not produced[:, first + 1 :].any()


def test_generate_until_runs_to_its_limit_without_eos(bound: BoundProgram, load: Load) -> None:
    model, prompt = load(bound), draw(2, 5)
    expected = greedy(model, prompt, 6)
    model.run_entry("prefill", [prompt[:, :4], 0])
    produced, count = model.run_entry("generate_until", [prompt[:, 4:], 4, -1], generics={"MaxNew": 6})
    assert count.item() == 6
    assert torch.equal(produced, expected)


def test_sample_is_reproducible_from_its_key(bound: BoundProgram, load: Load) -> None:
    model, prompt = load(bound), draw(2, 5)

    def sample(key: list[int], temperature: float) -> torch.Tensor:
        model.reset_state()
        model.run_entry("prefill", [prompt[:, :4], 0])
        return model.run_entry("sample", [prompt[:, 4:], 4, key, temperature], generics={"Steps": 12})

    first = sample([0, 42], 1.0)
    assert torch.equal(first, sample([0, 42], 1.0))
    assert not torch.equal(first, sample([0, 43], 1.0))
    assert first.min() >= 0
    assert first.max() < VOCAB
    # So cold that the likeliest token always wins.
    assert torch.equal(sample([0, 42], 1e-4), greedy(model, prompt, 12))


def log_probs(model: Model, prompts: list[torch.Tensor], targets: torch.Tensor) -> torch.Tensor:
    """Each packed position's log-probability of its target, by torch from `forward`'s logits."""
    logits = torch.cat([model(p[None])[0] for p in prompts])
    return torch.log_softmax(logits.double(), -1).gather(-1, targets[:, None])[:, 0].float()


def test_losses_equal_torchs_cross_entropy(bound: BoundProgram, load: Load, prompts: list[torch.Tensor]) -> None:
    model, pack = load(bound), packed(prompts)
    targets = draw(sum(LENGTHS)).long()
    weights = torch.rand(sum(LENGTHS), generator=torch.Generator().manual_seed(2))
    expected = log_probs(model, prompts, targets)
    inputs = [pack["tokens"], pack["positions"], pack["segments"], targets]
    close(model.run_entry("log_probs_packed", inputs), expected)
    loss = model.run_entry("loss_packed", [*inputs, weights])
    close(loss, -(weights * expected).sum())


def test_hidden_packed_is_what_the_head_reads(bound: BoundProgram, load: Load, prompts: list[torch.Tensor]) -> None:
    model, pack = load(bound), packed(prompts)
    states = model.run_entry("hidden_packed", [pack["tokens"], pack["positions"], pack["segments"]])
    head = model.state_dict()["lm_head.weight"]
    close(states @ head.T, torch.cat([model(p[None])[0] for p in prompts]))


def test_gradients_reach_every_floating_parameter(bound: BoundProgram, load: Load, prompts: list[torch.Tensor]) -> None:
    model, pack = load(bound, trainable=True), packed(prompts)
    targets = draw(sum(LENGTHS)).long()
    weights = torch.full((sum(LENGTHS),), 1 / sum(LENGTHS))
    inputs = [pack["tokens"], pack["positions"], pack["segments"], targets, weights]
    loss = model.run_entry("loss_packed", inputs)
    loss.backward()
    floating = {name: p for name, p in model.named_parameters() if p.is_floating_point()}
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in floating.values())
    assert set(model.frozen) == {name for name, p in model.named_parameters() if p.dtype == torch.uint8}
    assert len(model.frozen) == 2 * 7
    # A step against the gradient makes the loss smaller, which a wrong gradient would not.
    with torch.no_grad():
        for parameter in floating.values():
            parameter -= 0.01 * parameter.norm() / parameter.grad.norm() * parameter.grad
        assert model.run_entry("loss_packed", inputs) < loss


def test_gradients_equal_finite_differences(bound: BoundProgram, load: Load, prompts: list[torch.Tensor]) -> None:
    model, pack = load(bound, trainable=True), packed(prompts)
    targets = draw(sum(LENGTHS)).long()
    inputs = [pack["tokens"], pack["positions"], pack["segments"], targets, torch.ones(sum(LENGTHS))]
    model.run_entry("loss_packed", inputs).backward()
    generator = torch.Generator().manual_seed(11)
    for name in ("embedding.weight", "layers.0.attention.q_norm.weight", "layers.1.mlp.down.scale"):
        parameter = model.get_parameter(name)
        direction = torch.randn(parameter.shape, generator=generator) * parameter.detach().abs().mean()
        step = 1e-2
        with torch.no_grad():
            values = []
            for sign in (1, -1):
                parameter += sign * step * direction
                values.append(model.run_entry("loss_packed", inputs).item())
                parameter -= sign * step * direction
        slope = (values[0] - values[1]) / (2 * step)
        assert slope == pytest.approx((parameter.grad * direction).sum().item(), rel=2e-2, abs=2e-3), name
