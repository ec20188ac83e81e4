"""Which kernel each backend runs for an op call, under each of its numerics policies."""

from __future__ import annotations

from collections.abc import Callable

from linnet.language.program.core import CoreNode

# NATIVE: a kernel of the op's own; FUSED: one that rounds less often than the op states; BODY: the op's source.
NATIVE, FUSED, BODY = "native", "fused", "body"
# Backend -> policy -> one of these.
Kernels = dict[str, dict[str, str]]


def kernel_choice() -> Callable[[CoreNode], Kernels]:
    """What tells the kernels of an op call, for the backends that are installed. Raises ImportError without torch."""
    import torch

    from linnet.runner.torch.compiled.entry import FUSED_OPS
    from linnet.runner.torch.kernels import equivalent_kernels
    from linnet.runner.torch.primitives import Target

    kernels, fused = equivalent_kernels(), FUSED_OPS
    target = Target(torch.device("cpu"))

    def choose(node: CoreNode) -> Kernels:
        kernel = kernels.get(node.attributes["op"])
        native = NATIVE if kernel is not None and kernel.prepare(node, target) is not None else BODY
        fast = FUSED if node.attributes["op"] in fused else native
        return {"torch": {"exact": BODY, "equivalent": native, "fast": fast}}

    return choose


def default_run() -> str:
    """How torch runs an entry here when `compile` is left out, as a sentence. Raises ImportError without torch."""
    import torch

    from linnet.runner.torch.compiled.blocked import can_block
    from linnet.runner.torch.compiled.compiler import choose_mode

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not choose_mode(None, None, "equivalent", device, False):
        return f"By default the interpreter runs it on {device}."
    blocks = ", bf16 weights in blocks" if can_block(device) else ""
    return f"By default it runs on {device} as straight-line code{blocks}; under exact the interpreter runs it."
