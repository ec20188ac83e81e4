"""The FP8 kernels' checks, choices and operators, and their references: nothing here needs Triton or a GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from linnet.runner.torch.kernels import quant
from linnet.runner.torch.kernels import triton as kernels
from linnet.runner.torch.kernels.triton import configurations, dispatch, launch, reference, scaled
from linnet.runner.torch.kernels.triton.checks import E4M3
from linnet.runner.torch.kernels.triton.configurations import Place
from linnet.runner.torch.kernels.triton.errors import KernelInputError, KernelUnavailableError

CPU = torch.device("cpu")


def weights(out: int = 256, inner: int = 384, dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(out, inner, generator=generator).to(E4M3).view(torch.uint8)
    return weight, torch.rand(-(-out // 128), inner // 128, generator=generator).to(dtype)


def shifted(tensor: Tensor) -> Tensor:
    """A copy that starts one element after an aligned place."""
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    room[1:] = tensor.reshape(-1)
    return room[1:].view(tensor.shape)


# Refusals


def test_importing_needs_torch_alone() -> None:
    code = "import sys; import linnet.runner.torch.kernels.triton; print([m for m in sys.modules if m == 'triton'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(dispatch.interpreted(), reason="TRITON_INTERPRET is set: the kernels run on the CPU")
def test_a_cpu_is_refused_with_the_reason() -> None:
    weight, scale = weights()
    assert not kernels.available("cpu")
    x = torch.zeros(1, 384)
    for call in (
        lambda: kernels.block_linear(x, weight, scale),
        lambda: kernels.block_linear(x.expand(40, 384), weight, scale),
        lambda: kernels.gated(x, weight, scale),
        lambda: kernels.quantise(x),
        lambda: kernels.rms_norm_quantise(x, torch.ones(384), 1e-6),
        lambda: kernels.silu_mul_quantise(torch.zeros(2, 256)),
    ):
        with pytest.raises(
            KernelUnavailableError, match=r"cannot run on cpu, (which is not an NVIDIA GPU|since Triton)"
        ):
            call()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda x, w, s: (x, w.view(E4M3), s), "weight must be u8 [Out, In], not torch.float8_e4m3fn [256, 384]"),
        (lambda x, w, s: (x, w[:, :320].contiguous(), s), "weight's In, 320, must be a multiple of 128"),
        (lambda x, w, s: (x, w[:250].contiguous(), s), "weight's Out, 250, must be a multiple of 16"),
        (
            lambda x, w, s: (x, w, s[:1]),
            "scale must be bf16 or f32 [2, 3] for a weight of [256, 384], not torch.bfloat16 [1, 3]",
        ),
        (lambda x, w, s: (x, w, s.double()), "scale must be bf16 or f32 [2, 3]"),
        (lambda x, w, s: (x.double(), w, s), "x must be bf16, f16 or f32 [.., 384], not torch.float64 [1, 384]"),
        (lambda x, w, s: (x[:, :256], w, s), "x must be bf16, f16 or f32 [.., 384], not torch.float32 [1, 256]"),
        (lambda x, w, s: (x, w.t().contiguous().t(), s), "weight is not contiguous (strides (1, 256))"),
        (lambda x, w, s: (x, shifted(w), s), "weight does not start at a multiple of 16 bytes"),
        (lambda x, w, s: (x, w, s.t().contiguous().t()), "scale is not contiguous (strides (1, 2))"),
        (lambda x, w, s: (x, w, s.to("meta")), "x is on cpu and scale on meta"),
    ],
)
def test_what_a_product_refuses(change: object, problem: str) -> None:
    given = change(torch.zeros(1, 384), *weights())
    for call in (launch.gemv, launch.small_rows, launch.gated_gemv):
        with pytest.raises(KernelInputError) as caught:
            call(*given)
        assert problem in str(caught.value)
        assert str(caught.value).startswith(caught.value.kernel)


def test_parts_that_cut_a_block_are_refused() -> None:
    weight, scale = weights(384)
    with pytest.raises(KernelInputError, match="a multiple of 128 each: 384 rows are not"):
        kernels.gated(torch.zeros(1, 384), weight, scale)


def test_rows_that_a_kernel_is_not_for() -> None:
    weight, scale = weights()
    with pytest.raises(KernelInputError, match="x must have one row, not 2"):
        launch.gemv(torch.zeros(2, 384), weight, scale)
    with pytest.raises(KernelInputError, match="x must have 1 to 32 rows, not 33"):
        launch.small_rows(torch.zeros(33, 384), weight, scale)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda q, s: (q.float(), s, 4), "q must be E4M3"),
        (lambda q, s: (q[:3], s[:3], 3), "padded to a multiple of 4 rows, not 3"),
        (lambda q, s: (q, s, 9), "rows must be 0 to 8, not 9"),
        (lambda q, s: (q, s.contiguous(), 8), "scales must have strides (1, 8), not (3, 1)"),
        (lambda q, s: (q, s.double(), 8), "scales must be f32 [8, 3]"),
        (lambda q, s: (q[:, :256].contiguous(), s[:, :2], 8), "q has 256 columns, the weight 384"),
    ],
)
def test_rounded_inputs_that_do_not_fit(change: object, problem: str) -> None:
    weight, scale = weights()
    q, q_scale, rows = change(*reference.quantise(torch.ones(8, 384)))
    with pytest.raises(KernelInputError) as caught:
        launch.tile(q, q_scale, rows, weight, scale, torch.bfloat16)
    assert problem in str(caught.value)


def test_what_rounding_refuses() -> None:
    with pytest.raises(KernelInputError, match="In, 100, must be a multiple of 128"):
        launch.quantise(torch.zeros(1, 100))
    with pytest.raises(KernelInputError, match=r"weight must be bf16, f16 or f32 \[128\], not torch.float32 \[64\]"):
        launch.rms_norm_quantise(torch.zeros(1, 128), torch.zeros(64), 1e-6)
    with pytest.raises(KernelInputError, match="In, 65536, must be at most 32768"):
        launch.rms_norm_quantise(torch.zeros(1, 65536), torch.zeros(65536), 1e-6)
    with pytest.raises(KernelInputError, match="129 columns are not"):
        launch.silu_mul_quantise(torch.zeros(1, 129))
    with pytest.raises(KernelInputError, match=r"weights are decoded to bf16, f16 or f32, not torch\.float64"):
        kernels.decode_weight(*weights(), torch.float64)


def test_gradients_are_refused() -> None:
    x = torch.zeros(1, 384, requires_grad=True)
    with pytest.raises(KernelInputError, match='train with numerics="equivalent"'):
        kernels.block_linear(x, *weights())
    with torch.no_grad(), pytest.raises((KernelUnavailableError, KernelInputError), match="cannot run on"):
        kernels.block_linear(x, *weights())


@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_nan_bytes_are_refused(byte: int) -> None:
    weight, _ = weights()
    kernels.validate(weight)
    kernels.validate(weight.view(E4M3))
    weight[255, 383] = byte
    with pytest.raises(KernelInputError, match=r"NaN bytes, 0x7f or 0xff \(1 or more\)"):
        kernels.validate(weight)


# Operators


def test_operators_say_their_shapes_without_running() -> None:
    """What tracing sees: results on the meta device, with the shapes and strides that a run has."""
    weight, scale = (tensor.to("meta") for tensor in weights(512))
    x = torch.empty(2, 5, 384, dtype=torch.bfloat16, device="meta")
    assert torch.ops.linnet.fp8_linear(x, weight, scale, False).shape == (2, 5, 512)
    assert torch.ops.linnet.fp8_gated(x, weight, scale).shape == (2, 5, 256)
    q, q_scale = torch.ops.linnet.fp8_quantise(x)
    assert (q.shape, q.dtype) == ((12, 384), E4M3)
    assert (q_scale.shape, q_scale.stride()) == ((12, 3), (1, 12))
    made = torch.ops.linnet.fp8_product(q, q_scale, 10, weight, scale, torch.bfloat16)
    assert (made.shape, made.dtype) == ((10, 512), torch.bfloat16)
    q, _ = torch.ops.linnet.fp8_silu_mul_quantise(x.new_empty(3, 256))
    assert q.shape == (4, 128)


def test_tracing_sees_one_call() -> None:
    weight, scale = weights()

    class Layer(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return kernels.block_linear(x, weight, scale)

    with torch.no_grad():
        program = torch.export.export(Layer(), (torch.zeros(1, 384),))
    assert [node.target for node in program.graph.nodes if node.op == "call_function"] == [
        torch.ops.linnet.fp8_linear.default
    ]


# Choices


@pytest.mark.parametrize(
    ("rows", "block_scales", "path"),
    [
        (1, True, "gemv"),
        (2, True, "small_rows"),
        (32, False, "small_rows"),
        (33, True, "tile"),
        (255, True, "tile"),
        (256, True, "scaled_mm"),
        (256, False, "tile"),
        (4096, False, "tile"),
    ],
)
def test_rows_choose_the_kernel(rows: int, block_scales: bool, path: str) -> None:
    assert dispatch.route(rows, block_scales) == path


@pytest.mark.parametrize(
    ("capability", "cublaslt", "has"),
    [
        ((9, 0), 120900, True),
        ((9, 0), 130002, True),
        ((9, 0), 120805, False),
        ((10, 0), 130002, False),
        ((9, 0), 0, False),
    ],
)
def test_block_scales_need_hopper_and_a_new_cublaslt(capability: tuple[int, int], cublaslt: int, has: bool) -> None:
    device = dispatch.Device(capability, 132, 232448, cublaslt)
    assert dispatch.has_block_scales(device) == (has and scaled.in_torch())


def test_every_shape_has_a_configuration() -> None:
    for out, inner, rows in ((16, 128, 1), (2112, 7168, 7), (151936, 4096, 32), (4096, 12288, 20)):
        place = Place(12, 170, out, inner, rows)
        assert 128 % configurations.gemv(place).block_n == 0
        small = configurations.small_rows(place)
        assert small.block_m >= rows
        assert 128 % small.block_n == 0
        blocks = inner // 128
        steps = -(-blocks // small.splits)
        # No program is left without inputs.
        assert (small.splits - 1) * steps < blocks
        tile = configurations.tile(place, 101376)
        assert (tile.block_m + tile.block_n) * 128 * tile.stages < 101376
        assert tile.stages >= 2


def test_the_nearest_rows_win() -> None:
    place = Place(9, 132, 6144, 4096, 100)
    assert configurations.tile(place, 232448).block_n == 128
    assert configurations.tile(Place(9, 132, 6144, 4096, 70), 232448).block_n == 64
    assert configurations.tile(Place(9, 132, 6144, 4096, 4000), 232448).block_m == 128


# References


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_decoding_on_a_cpu(dtype: torch.dtype) -> None:
    weight, scale = weights(2048 + 128)
    wanted = quant.dequantize_fp8_block(weight, scale).to(dtype)
    assert torch.equal(kernels.decode_weight(weight, scale, dtype), wanted)
    rows = torch.rand(weight.shape[0], 1)
    assert torch.equal(kernels.decode_weight(weight, rows, dtype), quant.dequantize_fp8(weight, rows).to(dtype))


def test_the_reference_is_the_op() -> None:
    weight, scale = weights(dtype=torch.float32)
    x = torch.randn(3, 384, generator=torch.Generator().manual_seed(2))
    wanted = quant.fp8_block_linear(x, weight, scale)
    torch.testing.assert_close(reference.linear(x, weight, scale, torch.float32), wanted)
    gate, up = wanted.chunk(2, -1)
    torch.testing.assert_close(reference.gated(x, weight, scale, torch.float32), functional.silu(gate) * up)


def test_rounding_keeps_what_e4m3_can() -> None:
    x = torch.randn(6, 256, generator=torch.Generator().manual_seed(3)) * 1e4
    x[2, :128] = 0
    q, scales = reference.quantise(x)
    assert q.shape == (8, 256)
    assert scales.stride() == (1, 8)
    back = reference.dequantise(q, scales, 6)
    # Half of a step of three mantissa bits, and half of the smallest number below.
    assert bool(((back - x).abs() <= x.abs() * 2**-4 + scales[:6].repeat_interleave(128, 1) * 2**-10).all())
    assert bool((back[2, :128] == 0).all())
    assert float(q.float().abs().max()) == reference.E4M3_MAX


def test_block_scales_are_laid_out_for_cublaslt() -> None:
    scale = torch.rand(3, 8)
    laid = scaled.block_scale(scale)
    assert (laid.shape, laid.stride()) == ((8, 3), (1, 8))
    assert laid.data_ptr() == scale.data_ptr()
    padded = scaled.block_scale(torch.rand(3, 6).bfloat16())
    assert (padded.shape, padded.stride(), padded.dtype) == ((8, 3), (1, 8), torch.float32)
    assert bool((padded[6:] == 0).all())


def test_block_products_are_proved_not_trusted() -> None:
    """torch on a CPU has the function without the recipe: the probe says no instead of failing."""
    assert scaled.proves(CPU) is False
    assert dispatch.block_scales(CPU, torch.bfloat16) is False


@pytest.mark.skipif(not scaled.in_torch(), reason="this torch has no scaled_mm")
def test_rounding_row_by_row() -> None:
    weight, _ = weights()
    scale = torch.rand(256, 1)
    x = torch.randn(40, 384, generator=torch.Generator().manual_seed(4)).bfloat16()
    found = scaled.row_product(x, weight, scale)
    assert found.dtype == torch.bfloat16
    assert scaled.distance(found, reference.linear(x, weight, scale)) < 1e-3


def test_the_measure() -> None:
    x = torch.tensor([1.0, 2.0])
    assert scaled.distance(x, x) == 0.0
    assert scaled.distance(x, -x) == 2.0
    assert scaled.distance(torch.zeros(2), torch.zeros(2)) == 0.0
    assert not scaled.distance(torch.tensor([float("nan"), 1.0]), x) < 1e-3
