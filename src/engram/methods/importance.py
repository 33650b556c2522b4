"""The importance of each weight for what was learned, and the quadratic penalty on its change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Literal, NamedTuple, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from engram.core.errors import NonFinite
from engram.core.values import Batch
from engram.methods.losses import Terms
from engram.methods.state import State
from engram.models.heads import allowed_units, mask_scores

Label = Literal["predicted", "sampled", "true"]
FisherKind = Literal["sample", "batch", "batch-scaled"]

Strength = Annotated[float, Field(ge=0, description="weight of the penalty (λ)")]
FisherLabel = Annotated[Label, Field(description="the labels whose likelihood gives the Fisher information")]
FisherGradients = Annotated[
    FisherKind,
    Field(description="squared gradients of samples, of mini-batches, or of mini-batches times their size"),
]

CHUNK_BYTES = 256 * 2**20
"""How much memory the gradients of single samples may take at a time."""

SampleLosses = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From scores, labels and the mask of competing units to the loss of each sample."""

Magnitude = Callable[[Tensor], Tensor]
"""The magnitude of a gradient; that of a product must be the product of the magnitudes of its factors."""


def fisher_information(
    network: nn.Module,
    batches: Iterable[Batch],
    *,
    kind: FisherKind = "sample",
    label: Label = "predicted",
    generator: torch.Generator | None = None,
) -> list[Tensor]:
    """The Fisher information as a paper computes it: over samples, or over mini-batches.

    `sample` is `diagonal_fisher`; `batch` (De Lange et al. 2023) and `batch-scaled` (the permuted domain runs
    of Hsu et al. 2018) are `batch_fisher`, the latter with the size of each batch as a factor.

    Example:
        >>> layer = nn.Linear(1, 2, bias=False)
        >>> _ = nn.init.zeros_(layer.weight)
        >>> both = Batch(torch.ones(2, 1), torch.tensor([0, 1]), heads=((0, 1),))
        >>> fisher_information(layer, [both], kind="batch", label="true")  # the two gradients cancel
        [tensor([[0.],
                [0.]])]
    """
    if kind == "sample":
        return diagonal_fisher(network, batches, label=label, generator=generator)
    scale: Literal["one", "size"] = "one" if kind == "batch" else "size"
    return batch_fisher(network, batches, label=label, generator=generator, scale=scale)


def diagonal_fisher(
    network: nn.Module,
    batches: Iterable[Batch],
    *,
    label: Label = "predicted",
    generator: torch.Generator | None = None,
) -> list[Tensor]:
    """The diagonal of the Fisher information, one tensor per parameter.

    The mean over samples of the squared gradient of each sample's own log-likelihood, over the units that
    compete in its head. The label is the network's own answer (`predicted`, Hsu et al. 2018), drawn from its
    softmax (`sampled`, the true Fisher), or the right one (`true`, the empirical Fisher, Pfülb & Gepperth
    2019). Meanwhile the network is in evaluation mode: dropout is off and batch norm uses its running
    statistics, so the samples of a batch do not affect each other.

    One batched pass: for linear layers the squared gradient of the weight from unit i to o is δ_o²·a_i², so
    the sum over samples is a product of two matrices; networks with other layers, or with weights that are
    used more than once, go through `torch.func`, and one sample at a time where that refuses them. Sums are
    kept in single precision at least.

    Example:
        >>> layer = nn.Linear(1, 2, bias=False)
        >>> _ = nn.init.zeros_(layer.weight)
        >>> batch = Batch(torch.ones(1, 1), torch.tensor([0]), heads=((0, 1),))
        >>> diagonal_fisher(layer, [batch], label="true")  # the gradient is ±1/2
        [tensor([[0.2500],
                [0.2500]])]
    """
    return _mean_over_samples(
        network, batches, _log_losses, magnitude=torch.square, label=label, generator=generator
    )


def batch_fisher(
    network: nn.Module,
    batches: Iterable[Batch],
    *,
    label: Label = "true",
    generator: torch.Generator | None = None,
    scale: Literal["one", "size"] = "one",
) -> list[Tensor]:
    """What some reference code calls Fisher: squared gradients of whole mini-batches, not of samples.

    The mean over batches of the squared gradient of the batch's mean loss (De Lange et al. 2023,
    `scale="one"`), or of that times the batch's size (permuted domain runs of Hsu et al. 2018,
    `scale="size"`). Gradients of different signs cancel before they are squared, so the result is smaller
    than the Fisher information unless scaled, and depends on the batch size.
    """

    def loss(batch: Batch) -> Tensor:
        logits = network(batch.x)
        scores = mask_scores(logits, allowed_units(batch, logits.shape[1]))
        target = chosen_label(scores.detach(), batch.y, label=label, generator=generator)
        return nn.functional.cross_entropy(scores, target)

    return _mean_over_batches(network, batches, loss, magnitude=torch.square, scale=scale)


def output_sensitivity(
    network: nn.Module, batches: Iterable[Batch], *, kind: Literal["batch", "sample"] = "batch"
) -> list[Tensor]:
    """How much the squared outputs change with each weight (MAS), one tensor per parameter.

    `batch` (code of Hsu et al. 2018): the mean over batches of the absolute gradient of the mean squared
    score over samples and units. `sample` (the original): the mean over samples of the absolute gradient of
    the sum of squared scores. Only the units that compete in a sample's head count; no label is needed.
    Meanwhile the network is in evaluation mode.

    Example:
        >>> layer = nn.Linear(1, 2, bias=False)
        >>> _ = nn.init.ones_(layer.weight)
        >>> two = Batch(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 0]), heads=((0, 1),))
        >>> output_sensitivity(layer, [two], kind="sample")  # the mean of 2·1² and 2·2²
        [tensor([[5.],
                [5.]])]
    """
    if kind == "sample":
        return _mean_over_samples(network, batches, _squared_scores, magnitude=torch.abs)

    def loss(batch: Batch) -> Tensor:
        logits: Tensor = network(batch.x)
        return logits[allowed_units(batch, logits.shape[1])].square().mean()

    return _mean_over_batches(network, batches, loss, magnitude=torch.abs)


def chosen_label(
    logits: Tensor, y: Tensor, *, label: Label, generator: torch.Generator | None = None
) -> Tensor:
    """The labels whose likelihood is differentiated; units that do not compete have score −∞."""
    if label == "true":
        return y
    if label == "predicted":
        return logits.argmax(dim=1)
    chances = torch.softmax(logits.double(), dim=1).cpu()
    if not bool(chances.isfinite().all()):
        raise NonFinite("answers of the network")
    return torch.multinomial(chances, 1, generator=generator).squeeze(1).to(y.device)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put the network in evaluation mode; the mode of every part is restored on exit."""
    modes = [(part, part.training) for part in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _log_losses(logits: Tensor, y: Tensor, allowed: Tensor) -> Tensor:
    return nn.functional.cross_entropy(mask_scores(logits, allowed), y, reduction="none")


def _squared_scores(logits: Tensor, y: Tensor, allowed: Tensor) -> Tensor:
    return logits.masked_fill(~allowed, 0.0).square().sum(dim=1)


def _mean_over_samples(
    network: nn.Module,
    batches: Iterable[Batch],
    losses: SampleLosses,
    *,
    magnitude: Magnitude,
    label: Label = "true",
    generator: torch.Generator | None = None,
) -> list[Tensor]:
    """The mean over samples of the magnitude of the gradient of each sample's loss."""
    total = _zeros(network)
    count = 0
    with evaluating(network):
        for batch in batches:
            logits, calls = _traced(network, batch.x)
            allowed = allowed_units(batch, logits.shape[1])
            scores = mask_scores(logits.detach(), allowed)
            y = chosen_label(scores, batch.y, label=label, generator=generator)
            sums = None
            if calls is not None:
                with torch.enable_grad():
                    loss = losses(logits, y, allowed).sum()
                sums = _dense_sums(network, loss, calls, samples=len(batch), magnitude=magnitude)
            if sums is None:
                sums = _any_sums(network, (batch.x, y, allowed), losses, magnitude=magnitude)
            for sum_, part in zip(total, sums, strict=True):
                sum_ += part
            count += len(batch)
    return _means(network, total, count)


def _mean_over_batches(
    network: nn.Module,
    batches: Iterable[Batch],
    loss: Callable[[Batch], Tensor],
    *,
    magnitude: Magnitude,
    scale: Literal["one", "size"] = "one",
) -> list[Tensor]:
    """The mean over batches of the magnitude of the gradient of each batch's loss, times its scale.

    Parameters that do not learn (`requires_grad=False`) get 0.
    """
    total = _zeros(network)
    learning = [(p, sum_) for p, sum_ in zip(network.parameters(), total, strict=True) if p.requires_grad]
    learned = [p for p, _ in learning]
    count = 0
    with evaluating(network):
        for batch in batches:
            factor = len(batch) if scale == "size" else 1
            gradients = torch.autograd.grad(loss(batch), learned, allow_unused=True)
            for (_, sum_), gradient in zip(learning, gradients, strict=True):
                if gradient is not None:
                    sum_ += factor * magnitude(gradient.to(sum_.dtype))
            count += 1
    return _means(network, total, count)


def _zeros(network: nn.Module) -> list[Tensor]:
    """A sum for each parameter; in half precision, it would soon stop growing."""
    return [torch.zeros_like(p, dtype=_at_least_single(p)) for p in network.parameters()]


def _means(network: nn.Module, total: list[Tensor], count: int) -> list[Tensor]:
    return [(sum_ / max(count, 1)).to(p.dtype) for sum_, p in zip(total, network.parameters(), strict=True)]


def _at_least_single(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


class _Called(NamedTuple):
    """A layer that was called, its input, and where its output is in the graph."""

    layer: nn.Linear
    inputs: Tensor
    output: GradientEdge


def _traced(network: nn.Module, x: Tensor) -> tuple[Tensor, list[_Called] | None]:
    """The scores of inputs, and the calls of layers behind them.

    None instead of the calls, and scores without a graph, if not all weights belong to dense layers of their
    own, or if the inputs are tokens, which have no gradient.
    """
    layers = [part for part in network.modules() if type(part) is nn.Linear and "forward" not in vars(part)]
    own = [id(p) for layer in layers for p in (layer.weight, layer.bias) if p is not None]
    of_layers = len(set(own)) == len(own) and {id(p) for p in network.parameters()} <= set(own)
    if not of_layers or not x.is_floating_point():
        with torch.no_grad():
            return network(x.clone()), None
    calls: list[_Called] = []

    def note(layer: nn.Linear, args: tuple[Tensor, ...], named: dict[str, Tensor], result: Tensor) -> None:
        if result.requires_grad:
            inputs = args[0] if args else named["input"]
            # The node in the graph, not the tensor, which an in-place ReLU overwrites with its own output.
            calls.append(_Called(layer, inputs.detach(), get_gradient_edge(result)))

    # Before other hooks, which may replace the layer's output.
    hooks = [layer.register_forward_hook(note, prepend=True, with_kwargs=True) for layer in layers]
    try:
        with torch.enable_grad():
            # A copy, because the network may overwrite its input, with an in-place ReLU for example.
            return network(_traceable(x, network.parameters()).clone()), calls
    finally:
        for hook in hooks:
            hook.remove()


def _traceable(x: Tensor, parameters: Iterable[Tensor]) -> Tensor:
    """The input, with a gradient if some weights are frozen: so every layer has one."""
    return x.detach().requires_grad_(not all(p.requires_grad for p in parameters))


def _dense_sums(
    network: nn.Module, loss: Tensor, calls: Sequence[_Called], *, samples: int, magnitude: Magnitude
) -> list[Tensor] | None:
    """The sums over samples in closed form; None unless weights are used once, on one vector per sample."""
    applied = sorted(id(p) for call in calls for p in call.layer.parameters())
    if applied != sorted(map(id, network.parameters())):
        return None
    # A layer may be given several rows per sample, for example those of its patches.
    if any(call.inputs.dim() != 2 or len(call.inputs) != samples for call in calls):
        return None
    if not _used_once(loss, network.parameters()):
        return None
    sums = {id(p): zero for p, zero in zip(network.parameters(), _zeros(network), strict=True)}
    deltas = torch.autograd.grad(loss, [call.output for call in calls], allow_unused=True)
    for (layer, inputs, _), delta in zip(calls, deltas, strict=True):
        if delta is None:  # The loss does not depend on what this layer gave.
            continue
        wide = _at_least_single(layer.weight)
        size = magnitude(delta.to(wide))
        sums[id(layer.weight)] = size.T @ magnitude(inputs.to(wide))
        if layer.bias is not None:
            sums[id(layer.bias)] = size.sum(dim=0)
    return [sums[id(p)] for p in network.parameters()]


def _used_once(loss: Tensor, parameters: Iterable[Tensor]) -> bool:
    """Whether every parameter enters the graph of a loss in one place at most.

    A weight that a module applies, and that is used once more without it (`functional.linear(h, weight.T)`),
    enters in two, and its gradient is the sum of both.
    """
    uses: Counter[int] = Counter()
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for parent, _ in node.next_functions:
            waiting.append(parent)
            uses[id(getattr(parent, "variable", None))] += 1
    return all(uses[id(parameter)] <= 1 for parameter in parameters)


def _any_sums(
    network: nn.Module,
    questions: tuple[Tensor, Tensor, Tensor],
    losses: SampleLosses,
    *,
    magnitude: Magnitude,
) -> list[Tensor]:
    """The sums over samples for any network, in chunks whose gradients fit in memory."""
    parameters = {name: p.detach() for name, p in network.named_parameters()}
    buffers = dict(network.named_buffers())

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor, allowed: Tensor) -> Tensor:
        logits = torch.func.functional_call(network, (weights, buffers), (x[None].clone(),))
        return losses(logits, y[None], allowed[None])[0]

    size = max(1, CHUNK_BYTES // (4 * sum(p.numel() for p in parameters.values())))
    total = _zeros(network)
    with _without_traces(network):
        for chunk in zip(*(part.split(size) for part in questions), strict=True):
            for sum_, gradients in zip(total, _sample_gradients(loss, parameters, chunk), strict=True):
                sum_ += magnitude(gradients.to(sum_.dtype)).sum(dim=0)
    return total


@contextmanager
def _without_traces(network: nn.Module) -> Iterator[None]:
    """Restore attributes that hold activations: those of `torch.func` cannot be used outside of it."""
    before = [(part, dict(vars(part))) for part in network.modules()]
    try:
        yield
    finally:
        for part, attributes in before:
            for name, value in list(vars(part).items()):
                if isinstance(value, Tensor) and is_functorch_wrapped_tensor(value):
                    del vars(part)[name]
                    vars(part).update({name: attributes[name]} if name in attributes else {})


def _sample_gradients(
    loss: Callable[..., Tensor], parameters: dict[str, Tensor], questions: tuple[Tensor, ...]
) -> list[Tensor]:
    """The gradients of each sample's loss, one row per sample."""
    try:
        together = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0))
        gradients = together(parameters, *questions)
        return [gradients[name] for name in parameters]
    except RuntimeError:
        # A network that branches on a value, for example, takes one sample at a time; its own errors recur.
        leaves = {name: p.detach().requires_grad_() for name, p in parameters.items()}
        singles = []
        for question in zip(*questions, strict=True):
            with torch.enable_grad():
                value = loss(leaves, *question)
            singles.append(
                torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
            )
        return [torch.stack(rows) for rows in zip(*singles, strict=True)]


class Anchors:
    """A quadratic penalty Σ Ω (θ − θ*)², summed over all anchors that were added.

    A sum of parabolas is a parabola: only its curvature ΣΩ, its centre ΣΩθ*/ΣΩ and its minimum are kept, so
    memory and time do not grow with the number of tasks. There is no factor ½.

    Example:
        >>> weight = nn.Parameter(torch.tensor([1.0]))
        >>> anchors = Anchors()
        >>> anchors.add([torch.tensor([1.0])], [torch.tensor([0.0])])
        >>> anchors.add([torch.tensor([1.0])], [torch.tensor([4.0])])
        >>> anchors.penalty([weight]).item()  # (1 − 0)² + (1 − 4)²
        10.0
    """

    def __init__(self) -> None:
        self.importance: list[Tensor] = []
        self.centre: list[Tensor] = []
        self.lowest = 0.0

    def __bool__(self) -> bool:
        return bool(self.importance)

    @property
    def bytes(self) -> int:
        """How much memory the anchors take."""
        return sum(t.numel() * t.element_size() for t in [*self.importance, *self.centre])

    def add(self, importance: list[Tensor], centre: list[Tensor]) -> None:
        """Add an anchor."""
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

    def replace(self, importance: list[Tensor], centre: Iterable[Tensor]) -> None:
        """Replace all anchors by this one."""
        self.importance, self.centre = list(importance), [c.detach().clone() for c in centre]
        self.lowest = 0.0

    def move(self, importance: list[Tensor], centre: Iterable[Tensor], *, decay: float = 1.0) -> None:
        """Move the single anchor to `centre`; its importance is `decay` times the old plus the new."""
        if self:
            importance = [decay * old + new for old, new in zip(self.importance, importance, strict=True)]
        self.replace(importance, centre)

    def penalty(self, parameters: Iterable[nn.Parameter]) -> Tensor:
        """The penalty at these parameters."""
        here = list(parameters)
        if not self:
            return here[0].new_zeros(())
        value: Tensor = _Parabola.apply(self.importance, self.centre, *here)  # type: ignore[no-untyped-call]
        return value + self.lowest

    def added_to(self, terms: Terms, network: nn.Module, *, strength: float) -> Terms:
        """A loss with `strength` times the penalty added; unchanged while there are no anchors."""
        return terms.plus(strength * self.penalty(network.parameters())) if self else terms

    def pulls(self, parameters: Iterable[nn.Parameter]) -> tuple[Tensor, list[Tensor]]:
        """The penalty and half its gradient, Ω(θ − θ*), for methods that add the gradient themselves."""
        value, pulls = _parabola(self.importance, self.centre, [p.detach() for p in parameters])
        return value + self.lowest, pulls

    def state_dict(self) -> State:
        """The parabola."""
        return {"importance": self.importance, "centre": self.centre, "lowest": self.lowest}

    def load_state_dict(self, state: State) -> None:
        """Restore a parabola."""
        self.importance, self.centre = list(state["importance"]), list(state["centre"])
        self.lowest = state["lowest"]


def _parabola(
    importance: list[Tensor], centre: list[Tensor], parameters: Iterable[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Σ Ω (θ − c)², and each Ω(θ − c)."""
    value = centre[0].new_zeros(())
    pulls = []
    for weight, middle, parameter in zip(importance, centre, parameters, strict=True):
        away = parameter - middle
        pull = weight * away
        value += torch.dot(pull.flatten(), away.flatten())
        pulls.append(pull)
    return value, pulls


class _Context(Protocol):
    """What autograd hands from the forward to the backward pass."""

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...

    def save_for_backward(self, *tensors: Tensor) -> None: ...


class _Parabola(torch.autograd.Function):
    """Σ Ω (θ − c)² with its gradient 2Ω(θ − c) written out, which halves the passes over the weights."""

    @staticmethod
    def forward(ctx: _Context, importance: list[Tensor], centre: list[Tensor], *parameters: Tensor) -> Tensor:
        value, pulls = _parabola(importance, centre, parameters)
        ctx.save_for_backward(*pulls)
        return value

    @staticmethod
    def backward(ctx: _Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        factor = 2 * gradients[0]
        return (None, None, *(factor * pull for pull in ctx.saved_tensors))
