"""Which kernel each backend runs for an op call, under each of its numerics policies."""

from __future__ import annotations

from collections.abc import Callable

from linnet.language.program.core import CoreNode

NATIVE, BODY = "native", "body"
# Backend -> policy -> NATIVE or BODY.
Kernels = dict[str, dict[str, str]]


def kernel_choice() -> Callable[[CoreNode], Kernels]:
    """What tells the kernels of an op call, for the backends that are installed. Raises ImportError without torch."""
    import torch

    from linnet.runner.torch.kernels import equivalent_kernels
    from linnet.runner.torch.primitives import Target

    kernels = equivalent_kernels()
    target = Target(torch.device("cpu"))

    def choose(node: CoreNode) -> Kernels:
        kernel = kernels.get(node.attributes["op"])
        native = kernel is not None and kernel.prepare(node, target) is not None
        return {"torch": {"exact": BODY, "equivalent": NATIVE if native else BODY}}

    return choose
