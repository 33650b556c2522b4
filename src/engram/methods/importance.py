"""How much each weight matters for what was learned, and the quadratic penalty that guards it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from engram.core.values import Batch
from engram.methods.base import head_masks

Label = Literal["predicted", "sampled", "true"]
CHUNK_BYTES = 256 * 2**20


def diagonal_fisher(
    network: nn.Module,
    batches: Iterable[Batch],
    *,
    label: Label = "predicted",
    generator: torch.Generator | None = None,
) -> list[Tensor]:
    """The diagonal of the Fisher information, one tensor a parameter.

    The mean over samples of the squared gradient of each sample's own log-likelihood, over the units that
    compete in its head. The label is the network's own answer (`predicted`, 002), drawn from its softmax
    (`sampled`, the true Fisher), or the right one (`true`, the empirical Fisher, 004). The network is in
    evaluation mode meanwhile: dropout is off and batch norm uses its running statistics, so the samples of
    a batch do not mix.

    One batched pass: for linear layers the squared gradient of the weight from unit i to o is δ_o²·a_i², so
    the sum over samples is a product of two matrices; other layers go through `torch.func`.

    Example:
        >>> layer = nn.Linear(1, 2, bias=False)
        >>> _ = nn.init.zeros_(layer.weight)
        >>> batch = Batch(torch.ones(1, 1), torch.tensor([0]), heads=((0, 1),))
        >>> diagonal_fisher(layer, [batch], label="true")  # the gradient is ±1/2
        [tensor([[0.2500],
                [0.2500]])]
    """
    parameters = list(network.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    squares = _linear_squares if _only_linear(network) else _any_squares
    count = 0
    with evaluating(network):
        for batch in batches:
            logits, allowed = _scores(network, batch)
            target = chosen_label(logits, batch.y, label=label, generator=generator)
            for sum_, part in zip(total, squares(network, batch.x, target, allowed), strict=True):
                sum_ += part
            count += len(batch)
    return [sum_ / max(count, 1) for sum_ in total]


def batch_fisher(
    network: nn.Module,
    batches: Iterable[Batch],
    *,
    label: Label = "true",
    generator: torch.Generator | None = None,
    scale: Literal["one", "size"] = "one",
) -> list[Tensor]:
    """What some reference code calls Fisher: squared gradients of whole mini-batches, not of samples.

    The mean over batches of the squared gradient of the batch's mean loss (000, `scale="one"`), or of that
    times the batch's size (002's permuted domain runs, `scale="size"`). Gradients of different signs cancel
    before they are squared, so it is smaller than the Fisher unless scaled, and depends on the batch size.
    """
    parameters = list(network.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    count = 0
    with evaluating(network):
        for batch in batches:
            logits, _ = _scores(network, batch, grad=True)
            target = chosen_label(logits.detach(), batch.y, label=label, generator=generator)
            loss = nn.functional.cross_entropy(logits, target)
            factor = len(batch) if scale == "size" else 1
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
            for sum_, grad in zip(total, found, strict=True):
                if grad is not None:
                    sum_ += factor * grad.square()
            count += 1
    return [sum_ / max(count, 1) for sum_ in total]


def chosen_label(
    logits: Tensor, y: Tensor, *, label: Label, generator: torch.Generator | None = None
) -> Tensor:
    """The labels whose likelihood is differentiated; units out of the competition have score −∞."""
    if label == "true":
        return y
    if label == "predicted":
        return logits.argmax(dim=1)
    chances = torch.softmax(logits.double(), dim=1).cpu()
    return torch.multinomial(chances, 1, generator=generator).squeeze(1).to(y.device)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """The network in evaluation mode, every part put back to its own mode afterwards."""
    modes = [(part, part.training) for part in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def allowed_units(batch: Batch, n_units: int) -> Tensor:
    """Sample by sample, the units that compete."""
    masks = head_masks(batch.heads, n_units, batch.x.device)
    if isinstance(batch.head, Tensor):
        return masks[batch.head]
    return masks[batch.head].expand(len(batch), -1)


def _scores(network: nn.Module, batch: Batch, *, grad: bool = False) -> tuple[Tensor, Tensor]:
    with torch.set_grad_enabled(grad):
        logits = network(batch.x)
    allowed = allowed_units(batch, logits.shape[1])
    return logits.masked_fill(~allowed, -torch.inf), allowed


def _only_linear(network: nn.Module) -> bool:
    inside = {id(p) for part in network.modules() if isinstance(part, nn.Linear) for p in part.parameters()}
    return all(id(p) in inside for p in network.parameters())


def _linear_squares(network: nn.Module, x: Tensor, target: Tensor, allowed: Tensor) -> list[Tensor]:
    """Summed squared gradients where every weight is in a linear layer that sees one vector a sample."""
    inputs: dict[int, Tensor] = {}
    outputs: dict[int, Tensor] = {}

    def note(layer: nn.Module, given: tuple[Any, ...], result: Tensor) -> None:
        inputs[id(layer)], outputs[id(layer)] = given[0].detach(), result

    layers = [part for part in network.modules() if isinstance(part, nn.Linear)]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        with torch.enable_grad():
            logits = network(x).masked_fill(~allowed, -torch.inf)
            loss = nn.functional.cross_entropy(logits, target, reduction="sum")
            used = [layer for layer in layers if id(layer) in outputs]
            deltas = torch.autograd.grad(loss, [outputs[id(layer)] for layer in used])
    finally:
        for hook in hooks:
            hook.remove()
    squares: dict[int, Tensor] = {}
    for layer, delta in zip(used, deltas, strict=True):
        delta_sq, input_sq = delta.square(), inputs[id(layer)].square()
        squares[id(layer.weight)] = delta_sq.T @ input_sq
        if layer.bias is not None:
            squares[id(layer.bias)] = delta_sq.sum(dim=0)
    return [squares.get(id(p), torch.zeros_like(p)) for p in network.parameters()]


def _any_squares(network: nn.Module, x: Tensor, target: Tensor, allowed: Tensor) -> list[Tensor]:
    """Summed squared gradients of any network, in chunks whose gradients fit in memory."""
    parameters = {name: p.detach() for name, p in network.named_parameters()}
    buffers = dict(network.named_buffers())

    def loss(weights: dict[str, Tensor], x: Tensor, target: Tensor, allowed: Tensor) -> Tensor:
        logits = torch.func.functional_call(network, (weights, buffers), (x[None],))
        return nn.functional.cross_entropy(logits.masked_fill(~allowed[None], -torch.inf), target[None])

    one = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0))
    size = max(1, CHUNK_BYTES // (4 * sum(p.numel() for p in parameters.values())))
    total = [torch.zeros_like(p) for p in parameters.values()]
    for start in range(0, len(x), size):
        piece = slice(start, start + size)
        gradients = one(parameters, x[piece], target[piece], allowed[piece])
        for sum_, name in zip(total, parameters, strict=True):
            sum_ += gradients[name].square().sum(dim=0)
    return total


class Anchors:
    """A quadratic penalty Σ Ω (θ − θ*)², summed over as many anchors as were dropped.

    A sum of parabolas is a parabola: only its curvature ΣΩ, its centre ΣΩθ*/ΣΩ and its lowest value are
    kept, so that memory and time do not grow with the number of tasks. There is no factor ½.

    Example:
        >>> weight = nn.Parameter(torch.tensor([1.0]))
        >>> anchors = Anchors()
        >>> anchors.add([torch.tensor([1.0])], [torch.tensor([0.0])])
        >>> anchors.add([torch.tensor([1.0])], [torch.tensor([4.0])])
        >>> float(anchors.penalty([weight]))  # (1 − 0)² + (1 − 4)²
        10.0
    """

    def __init__(self) -> None:
        self.importance: list[Tensor] = []
        self.centre: list[Tensor] = []
        self.lowest = 0.0

    @property
    def bytes(self) -> int:
        """How much memory the anchors take."""
        return sum(t.numel() * t.element_size() for t in [*self.importance, *self.centre])

    def add(self, importance: list[Tensor], centre: list[Tensor]) -> None:
        """Drop one more anchor."""
        centre = [c.detach().clone() for c in centre]
        if not self.importance:
            self.importance, self.centre = list(importance), centre
            return
        for i, (added, place) in enumerate(zip(importance, centre, strict=True)):
            held, old = self.importance[i], self.centre[i]
            both = held + added
            share = torch.where(both > 0, added / both, torch.ones_like(both))
            self.lowest += float((held * share * (place - old).square()).sum(dtype=torch.float64))
            self.importance[i], self.centre[i] = both, old + share * (place - old)

    def replace(self, importance: list[Tensor], centre: list[Tensor]) -> None:
        """Drop all anchors but this one."""
        self.importance, self.centre = list(importance), [c.detach().clone() for c in centre]
        self.lowest = 0.0

    def penalty(self, parameters: Iterable[nn.Parameter]) -> Tensor:
        """The penalty at these parameters."""
        here = list(parameters)
        if not self.importance:
            return here[0].new_zeros(())
        value: Tensor = _Parabola.apply(self.importance, self.centre, *here)  # type: ignore[no-untyped-call]
        return value + self.lowest

    def state_dict(self) -> dict[str, Any]:
        """All that is kept."""
        return {"importance": self.importance, "centre": self.centre, "lowest": self.lowest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what was kept."""
        self.importance, self.centre = list(state["importance"]), list(state["centre"])
        self.lowest = state["lowest"]


class _Parabola(torch.autograd.Function):
    """Σ Ω (θ − c)² with its gradient 2Ω(θ − c) written down, in half the passes over the weights."""

    @staticmethod
    def forward(ctx: Any, importance: list[Tensor], centre: list[Tensor], *parameters: Tensor) -> Tensor:
        value = parameters[0].new_zeros(())
        pulls = []
        for weight, middle, parameter in zip(importance, centre, parameters, strict=True):
            away = parameter - middle
            pull = weight * away
            value += torch.dot(pull.flatten(), away.flatten())
            pulls.append(pull)
        ctx.save_for_backward(*pulls)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        factor = 2 * gradients[0]
        return (None, None, *(factor * pull for pull in ctx.saved_tensors))
