"""Memory that is short: which sizes are told, on a CPU and on a GPU, whose errors are made up here."""

from __future__ import annotations

import mmap
import platform
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from linnet.language.program.binding import BoundProgram
from linnet.runner.errors import AllocationError, memory_text
from linnet.runner.torch import memory
from linnet.runner.torch.memory import allocation_error, loading
from linnet.runner.torch.module import load_model
from linnet.runner.torch.pages import HUGE_PAGE, allocate, enlarge, give_back_edges, give_back_file, zeros
from linnet.runner.torch.weights import TensorLocation, WeightSource

CPU = torch.device("cpu")
STATM = Path("/proc/self/statm")
# Since 6.1 Linux makes large pages on demand.
LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled").exists() and tuple(
    map(int, platform.release().split(".")[:2])
) >= (6, 1)
GPU = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139.80 GiB of which 1.21 GiB is "
    "free. Including non-PyTorch memory, this process has 138.59 GiB memory in use."
)
SOURCE = """\
module m

pub block Table {
    param weight: Tensor[512, 1024; f32]

    pub entry forward() -> Tensor[512, 1024; f32] {
        return weight + weight
    }
}
"""


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 3 * 2**19)
    monkeypatch.setattr(memory, "_swap", lambda: 0)


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize(
    ("error", "device", "said"),
    [
        (
            torch.OutOfMemoryError(GPU),
            "cuda:0",
            "entry decode needs 2.5 GiB more on cuda:0, where 1.5 MiB are free: take",
        ),
        (torch.OutOfMemoryError(""), "cuda", "entry decode needs more memory on cuda, where 1.5 MiB are free: take"),
        (RuntimeError("you tried to allocate 4096 bytes."), "cpu", "needs 4,096 bytes more on cpu, where 1.5 MiB are"),
        (MemoryError(), "cpu", "entry decode needs more memory on cpu, where 1.5 MiB are free: take smaller sizes"),
    ],
    ids=["cuda", "cuda, silent", "cpu", "python"],
)
def test_what_torch_says_becomes_a_sentence(error: Exception, device: str, said: str) -> None:
    made = allocation_error(error, "entry decode", torch.device(device))
    assert said in str(made)
    assert isinstance(made, MemoryError)


def test_what_is_free_is_left_out_where_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 0)
    assert "needs more memory on cpu, which it does not have: take" in str(allocation_error(MemoryError(), "x", CPU))


def test_other_errors_are_no_matter_of_memory() -> None:
    assert allocation_error(RuntimeError("a shape is wrong"), "entry decode", CPU) is None
    assert allocation_error(AllocationError("x", "cpu", 1, 1), "entry decode", CPU) is None


@pytest.mark.usefixtures("free")
def test_weights_that_do_not_fit_are_refused_before_they_are_read(
    bind_source: Callable[..., BoundProgram], tmp_path: Path
) -> None:
    bound = bind_source(SOURCE)
    file = tmp_path / "model.safetensors"
    save_file({"weight": torch.ones(512, 1024, dtype=torch.bfloat16)}, file)
    source = WeightSource({}, {"weight": TensorLocation(file, "weight", "BF16", (512, 1024))})
    said = r"^loading the weights needs 2\.0 MiB more on cpu, where 1\.5 MiB are free: take smaller sizes"
    with pytest.raises(AllocationError, match=said):
        load_model(bound, source, convert=True)
    # Those that stay where their file is mapped take none.
    save_file({"weight": torch.ones(512, 1024)}, file)
    load_model(bound, WeightSource({}, {"weight": TensorLocation(file, "weight", "F32", (512, 1024))}))


@pytest.mark.usefixtures("free")
def test_a_gpu_is_asked_first() -> None:
    said = r"loading the weights needs 15\.3 GiB more on cuda:0, where 1\.5 MiB are free"
    with pytest.raises(AllocationError, match=said), loading(16430000000, torch.device("cuda:0")):
        raise torch.OutOfMemoryError(GPU)
    with pytest.raises(RuntimeError, match="another"), loading(2, CPU):
        raise RuntimeError("another")


def test_sizes_as_people_read_them() -> None:
    assert [memory_text(n) for n in (0, 4096, 2**20, 5 * 2**29, 2**44)] == [
        "0 bytes", "4,096 bytes", "1.0 MiB", "2.5 GiB", "16,384.0 GiB",
    ]  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 1000, 3 * 2**20 + 5])
def test_memory_for_large_pages_is_zeros_of_its_own(count: int) -> None:
    first, second = allocate(count, torch.bfloat16), allocate(count, torch.bfloat16)
    assert (first.shape, first.dtype) == ((count,), torch.bfloat16)
    assert not first.any()
    first += 1
    enlarge(first)
    assert not second.any()
    assert bool((first == 1).all())


@pytest.mark.skipif(not LARGE_PAGES, reason="the system has no large pages, or makes none on demand")
def test_memory_goes_to_large_pages_with_what_it_holds() -> None:
    made = allocate(3 * HUGE_PAGE // 4, torch.int32)
    made.copy_(torch.arange(made.numel()))
    before = on_large_pages()
    enlarge(made)
    assert on_large_pages() - before == made.nbytes // HUGE_PAGE * HUGE_PAGE
    assert torch.equal(made, torch.arange(made.numel(), dtype=torch.int32))


@pytest.mark.skipif(not STATM.exists(), reason="the system does not tell what memory a process holds")
def test_states_take_memory_where_they_are_written() -> None:
    made = zeros((64, 2**20), torch.float32, CPU)
    before = resident()
    made[:, :1024] = 1
    assert made.sum() == 64 * 1024
    assert resident() - before < 16 * 2**20


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="the system does not tell pages apart")
@pytest.mark.parametrize("change", ["none", "in place", "through numpy", "no file"])
def test_a_file_is_given_back_but_no_change_to_what_was_read_from_it(tmp_path: Path, change: str) -> None:
    kept = torch.arange(2**20, dtype=torch.int32)
    kept.numpy().tofile(tmp_path / "weights")
    tensor = torch.from_file(str(tmp_path / "weights"), shared=False, size=2**20, dtype=torch.int32)
    if change == "no file":
        tensor = kept.clone()
    elif change == "in place":
        tensor[5000] = kept[5000] = -1
    elif change == "through numpy":
        tensor.numpy()[7000] = kept[7000] = -1
    assert torch.equal(tensor, kept)
    before = resident()
    give_back_file(tensor)
    assert (before - resident() > 3 * 2**20) == (change == "none")
    assert torch.equal(tensor, kept)


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="the system does not tell pages apart")
@pytest.mark.parametrize("changed", [False, True])
def test_with_a_tensor_goes_what_the_system_mapped_around_it(tmp_path: Path, changed: bool) -> None:
    file = tmp_path / "weights"
    torch.arange(2**20, dtype=torch.int32).numpy().tofile(file)
    whole = torch.from_file(str(file), shared=False, size=2**20, dtype=torch.int32)
    small = whole[500_000:500_010]
    if changed:
        small[0] = -1
    assert small[1] == 500_001
    assert mapped(file) > 0
    give_back_edges([small, torch.ones(3)])
    assert (mapped(file) > 0) == changed
    assert small.tolist() == [-1 if changed else 500_000, *range(500_001, 500_010)]


def test_memory_that_the_system_refuses_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="tried to allocate"):
        zeros((2**60,), torch.float32, CPU)


def resident() -> int:
    """Memory that this process holds, in bytes."""
    return int(STATM.read_text().split()[1]) * mmap.PAGESIZE


def mapped(file: Path) -> int:
    """Memory of this process that is mapped from `file`, in bytes."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.endswith(str(file)))
    return next(1024 * int(line.split()[1]) for line in lines[start:] if line.startswith("Rss:"))


def on_large_pages() -> int:
    """Memory of this process that lies on large pages, in bytes."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))
