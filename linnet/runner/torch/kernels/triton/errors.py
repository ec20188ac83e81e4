"""What the FP8 kernels refuse."""

from __future__ import annotations

from linnet.runner.errors import RunnerError


class KernelInputError(RunnerError, ValueError):
    """Tensors that a kernel cannot take. `kernel` names it; `problem` says which tensor, and what it should be."""

    def __init__(self, kernel: str, problem: str) -> None:
        super().__init__(kernel, problem)
        self.kernel = kernel
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.kernel}: {self.problem}"


class KernelUnavailableError(RunnerError):
    """A kernel was asked for on a device that cannot run it."""

    def __init__(self, kernel: str, device: object, reason: str) -> None:
        super().__init__(f"{kernel} cannot run on {device}, {reason}: decode the weights there")
