"""Generative models that methods hold in place of a memory of samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple, Protocol, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from engram.core.errors import InputError
from engram.core.values import OptimizerSpec, TaskInfo
from engram.methods.optimizers import build_optimizer
from engram.methods.state import State
from engram.models.network import frozen_copy

Latent = Annotated[int, Field(gt=0, description="numbers in the generator's code")]
Low = Annotated[float | None, Field(description="smallest input value (default: that of the first batch)")]
High = Annotated[float | None, Field(description="largest input value (default: that of the first batch)")]


class Inputs(NamedTuple):
    """The shape and the range of the inputs that a generative model imitates."""

    shape: tuple[int, ...]
    limits: tuple[float, float]

    @classmethod
    def of(cls, x: Tensor, *, low: float | None = None, high: float | None = None) -> Inputs:
        """The inputs of a first batch; limits that are None are its smallest and its largest value.

        Example:
            >>> Inputs.of(torch.tensor([[-0.4, 0.0], [2.0, 1.0]]), high=2.5).limits
            (-0.4000000059604645, 2.5)
        """
        check_limits(low, high)
        least = float(x.min()) if low is None else low
        greatest = float(x.max()) if high is None else high
        if greatest < least:
            limit = f"high={high}" if low is None else f"low={low}"
            raise InputError(
                f"{limit} does not fit the first batch, whose inputs are from {float(x.min()):g} to "
                f"{float(x.max()):g}: leave it out, or give both limits"
            )
        # If all values of the first batch are equal, the range is unknown, and any width will do.
        return cls(tuple(x.shape[1:]), (least, greatest if greatest > least else least + 1.0))


def check_limits(low: float | None, high: float | None) -> None:
    """Refuse a lower limit that is not below the upper one.

    Example:
        >>> check_limits(5.0, 1.0)
        Traceback (most recent call last):
        engram.core.errors.InputError: low must be below high, got low=5.0 and high=1.0
    """
    if low is not None and high is not None and low >= high:
        raise InputError(f"low must be below high, got low={low} and high={high}")


class Generates(Protocol):
    """A model that generates inputs from standard normal noise of `latent` numbers per sample."""

    @property
    def latent(self) -> int:
        """How many numbers the code of a sample has."""

    def generate(self, code: Tensor) -> Tensor:
        """The inputs of these codes."""


class GenerativeMemory:
    """A generative model that learns, its optimiser, and the model as it was when the last task ended.

    The model is made when the first batch shows the shape and range of inputs, or when a state is restored.
    Initial weights and noise are drawn from one generator.

    Args:
        make: Makes the model for inputs of some shape and range.
        optimizer_spec: How it is updated.
        generator: The source of all randomness; it belongs to the method.

    Example:
        >>> from engram.models.vae import VAE
        >>> def make(inputs: Inputs) -> nn.Module:
        ...     return VAE(inputs.shape, hidden=(8,), latent=2, limits=inputs.limits)
        >>> memory = GenerativeMemory(make, OptimizerSpec("adam"), torch.Generator().manual_seed(0))
        >>> memory.meet(Inputs((1, 4, 4), (0.0, 1.0)), torch.device("cpu"))
        >>> memory.end_task()
        >>> memory.imagine(3).shape
        torch.Size([3, 1, 4, 4])
    """

    def __init__(
        self, make: Callable[[Inputs], nn.Module], optimizer_spec: OptimizerSpec, generator: torch.Generator
    ) -> None:
        self.make = make
        self.optimizer_spec = optimizer_spec
        self.generator = generator
        self.inputs: Inputs | None = None
        self.model: nn.Module | None = None
        self.optimizer: Optimizer | None = None
        self.previous: nn.Module | None = None

    def meet(self, inputs: Inputs, device: torch.device) -> None:
        """Make the model, once: its initial weights come from the memory's generator alone."""
        self.inputs = inputs
        seed = int(torch.randint(2**62, (1,), generator=self.generator))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.model = self.make(inputs).to(device)
        self.optimizer = build_optimizer(self.optimizer_spec, self.model.parameters())

    def begin_task(self, task: TaskInfo) -> None:
        """Clear the optimiser's state in later tasks, if the experiment resets optimisers."""
        if self.optimizer_spec.reset and task.index > 0 and self.model is not None:
            self.optimizer = build_optimizer(self.optimizer_spec, self.model.parameters())

    def end_task(self) -> None:
        """Keep a copy of the model, which generates inputs from now on."""
        if self.model is not None:
            self.previous = frozen_copy(self.model)

    def noise(self, size: int) -> Tensor:
        """Standard normal noise for `size` samples."""
        assert self.model is not None
        device = next(self.model.parameters()).device
        latent = cast(Generates, self.model).latent
        return torch.randn(size, latent, generator=self.generator).to(device)

    def imagine(self, size: int) -> Tensor:
        """`size` inputs generated by the previous model."""
        assert self.previous is not None
        with torch.no_grad():
            return cast(Generates, self.previous).generate(self.noise(size))

    def step(self, *, lr: float) -> None:
        """Update the model with the gradients that it holds, and clear them."""
        assert self.optimizer is not None
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    @property
    def bytes(self) -> int:
        """How much memory the models take, without the optimiser's state."""
        held = [model for model in (self.model, self.previous) if model is not None]
        tensors = [tensor for model in held for tensor in model.state_dict().values()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def state_dict(self) -> State:
        """Models, optimiser, and what they need to be made again; the generator belongs to the method."""
        if self.inputs is None or self.model is None or self.optimizer is None:
            return {"inputs": None}
        return {
            "inputs": [list(self.inputs.shape), list(self.inputs.limits)],
            "device": str(next(self.model.parameters()).device),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "previous": None if self.previous is None else self.previous.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore a state."""
        self.inputs = self.model = self.optimizer = self.previous = None
        if state["inputs"] is None:
            return
        (shape, (low, high)), drawn = state["inputs"], self.generator.get_state()
        self.meet(Inputs(tuple(shape), (low, high)), torch.device(state["device"]))
        # The initial weights that were just drawn are overwritten, so the draw is undone.
        self.generator.set_state(drawn)
        assert self.model is not None and self.optimizer is not None
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["previous"] is not None:
            self.end_task()
            assert self.previous is not None
            self.previous.load_state_dict(state["previous"])
