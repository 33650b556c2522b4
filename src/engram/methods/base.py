"""What a method is, and the learner that most of them differ from in one or two places."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import lru_cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Union,
    final,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import torch
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo
from torch import Tensor, nn
from torch.nn import functional

from engram.core.errors import InputError
from engram.core.values import Batch, OptimizerSpec, TaskInfo
from engram.methods.augment import crop_and_flip
from engram.methods.optimizers import build_optimizer, cosine_factor
from engram.methods.state import capture, kept_bytes, restore
from engram.models.network import Network


@runtime_checkable
class Method(Protocol):
    """Four verbs, and a state that can be put down and taken up: all that an experiment asks of a method."""

    def begin_task(self, task: TaskInfo) -> None:
        """A task begins; called only where the setting shows boundaries, and once at the very start."""

    def observe(self, batch: Batch) -> float:
        """Learn from one batch of new samples: one update, the atomic change that evaluation watches."""

    def end_task(self, batches: Iterable[Batch]) -> None:
        """A task ended; its data may be read once more."""

    def predictor(self) -> nn.Module:
        """The network that would answer now: inputs to the scores of all output units."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on, as tensors and plain values."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""

    def kept_bytes(self) -> int:
        """Bytes kept beyond the weights and the optimiser's state, counted from what is really held."""


class Terms(NamedTuple):
    """What an update asks for the sake of the new, and for the sake of the old."""

    new: Tensor
    old: Tensor | None = None

    def plus(self, old: Tensor) -> Terms:
        """The same with one more term for the old."""
        return Terms(self.new, old if self.old is None else self.old + old)

    def total(self) -> Tensor:
        """The sum, which is minimised."""
        return self.new if self.old is None else self.new + self.old


@dataclass(kw_only=True, eq=False)
class Learner(ABC):
    """Fine-tuning with four seams. A method overrides those where it differs, and nothing else.

    The fields below are given by the experiment; the fields that a method adds are its
    hyper-parameters, each `Annotated` with its bounds and its meaning.

    Attributes:
        network: The network that learns.
        optimizer_spec: How it is updated.
        generator: The method's own randomness, for memories and the like.

    Class attributes say what kind of method it is: `family`, `paper`, `needs` (of "task identity",
    "boundaries", "stored data"), `joint`, which asks for all tasks at once instead of one by one, and for a
    method whose `memory` counts samples, `bytes_per_value`, with which a budget of bytes sizes it, and
    `bytes_beside`, what label, head and the like of a sample take (32 unless said).
    """

    network: Network
    optimizer_spec: OptimizerSpec = field(default_factory=OptimizerSpec)
    generator: torch.Generator = field(default_factory=torch.Generator)

    family: ClassVar[str] = "baseline"
    paper: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()
    joint: ClassVar[bool] = False

    @classmethod
    def needs_with(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """What the method needs with these hyper-parameters, where that depends on them."""
        return cls.needs

    def __post_init__(self) -> None:
        self.optimizer = build_optimizer(self.optimizer_spec, self.network.parameters())
        self.task: TaskInfo | None = None
        self.step_in_task = 0
        self.split_gradients = False
        self.augmentation: torch.Generator | None = None
        self.gradient_norms: dict[str, float] = {}
        self.loss_parts: dict[str, float] = {}
        self.setup()

    # The seams ------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Prepare what the method holds besides the network; called once."""

    def rehearse(self, batch: Batch) -> Batch:
        """The samples of this update: the new ones, joined by remembered ones."""
        return batch

    def loss(self, batch: Batch) -> Terms:
        """What the update minimises."""
        return batch_loss(self.network(batch.x), batch)

    def edit_gradients(self, batch: Batch) -> None:
        """Change the gradients before the step."""

    def after_step(self, batch: Batch) -> None:
        """Take note of what was learned; `batch` holds the new samples alone."""

    # The four verbs -------------------------------------------------------------------------------

    def begin_task(self, task: TaskInfo) -> None:
        """Take note of the task; clear the optimiser's state where the experiment says so."""
        self.task = task
        self.step_in_task = 0
        if self.optimizer_spec.reset and task.index > 0:
            self.optimizer = build_optimizer(self.optimizer_spec, self.network.parameters())

    @final
    def observe(self, batch: Batch) -> float:
        """One update."""
        self._follow_schedule()
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        joined = self.seen(self.rehearse(batch))
        terms = self.loss(joined)
        loss = terms.total()
        new = self._gradient_of(terms.new) if self.split_gradients else None
        loss.backward()
        self.edit_gradients(joined)
        if new is not None:
            self._note_norms(new)
            self._note_parts(terms)
        self.optimizer.step()
        self.step_in_task += 1
        self.after_step(batch)
        return float(loss.detach())

    @final
    def seen(self, batch: Batch) -> Batch:
        """The samples as the network is to see them: images changed at random where the experiment says so.

        What an update learns from is changed already; samples that a method draws itself go through here.
        What is remembered stays as it came, and is changed anew whenever it is learned.
        """
        if self.augmentation is None:
            return batch
        return replace(batch, x=crop_and_flip(batch.x, self.augmentation))

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Nothing to keep."""

    def predictor(self) -> nn.Module:
        """The network itself."""
        return self.network

    # State and measurement ------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on, as tensors and plain values."""
        return capture(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave: the learner goes on to the same bits."""
        restore(self, state)

    def kept_bytes(self) -> int:
        """Bytes kept beyond the weights and the optimiser's state, counted from what is really held."""
        return kept_bytes(self)

    def _follow_schedule(self) -> None:
        if self.optimizer_spec.schedule == "cosine" and self.task is not None:
            factor = cosine_factor(self.step_in_task, self.task.steps)
            for group in self.optimizer.param_groups:
                group["lr"] = self.optimizer_spec.lr * factor

    def _gradient_of(self, loss: Tensor) -> list[Tensor]:
        # On the same graph as the update and before its backward pass, so that the update's own bits stay.
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]

    def _note_norms(self, new: list[Tensor]) -> None:
        """Split the update's gradient: what the new asks (plasticity), and all the rest (stability)."""
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        rest = [(-g if p.grad is None else p.grad - g) for p, g in zip(parameters, new, strict=True)]
        self.gradient_norms = {"plasticity-gradient": _norm(new), "stability-gradient": _norm(rest)}

    def _note_parts(self, terms: Terms) -> None:
        """Split the update's loss likewise, as it was before the update, each part with its weight."""
        old = 0.0 if terms.old is None else float(terms.old.detach())
        self.loss_parts = {"plasticity-loss": float(terms.new.detach()), "stability-loss": old}


def _norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors))


# Losses -------------------------------------------------------------------------------------------


def batch_loss(logits: Tensor, batch: Batch) -> Terms:
    """Cross-entropy of a batch, new and remembered samples apart.

    Without weights it is the plain mean, else the weighted sum of the samples' losses.
    """
    if batch.weight is None:
        return Terms(cross_entropy(logits, batch))
    losses = cross_entropy(logits, batch, reduction="none") * batch.weight
    if batch.fresh is None or batch.fresh == len(batch):
        return Terms(losses.sum())
    return Terms(losses[: batch.fresh].sum(), losses[batch.fresh :].sum())


def cross_entropy(logits: Tensor, batch: Batch, *, reduction: str = "mean") -> Tensor:
    """Cross-entropy in which only the units of each sample's head compete.

    Example:
        >>> batch = Batch(torch.zeros(1, 1), torch.tensor([3]), heads=((0, 1), (2, 3)), head=1)
        >>> round(float(cross_entropy(torch.zeros(1, 4), batch)), 6)  # two units compete: ln 2
        0.693147
    """
    if isinstance(batch.head, Tensor):
        allowed = head_masks(batch.heads, logits.shape[1], logits.device)[batch.head]
        return functional.cross_entropy(
            logits.masked_fill(~allowed, -torch.inf), batch.y, reduction=reduction
        )
    units, target = select_units(logits, batch.y, batch.heads[batch.head])
    return functional.cross_entropy(units, target, reduction=reduction)


def select_units(logits: Tensor, y: Tensor, units: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The scores of some units alone, and the labels counted among them.

    Example:
        >>> select_units(torch.arange(4.0)[None], torch.tensor([3]), (1, 3))
        (tensor([[1., 3.]]), tensor([1]))
    """
    first, last = units[0], units[-1]
    if last - first + 1 == len(units):
        if len(units) == logits.shape[1]:
            return logits, y
        return logits[:, first : last + 1], y - first if first else y
    index = torch.tensor(units, device=logits.device)
    return logits[:, index], torch.searchsorted(index, y)


@lru_cache(maxsize=256)
def head_masks(heads: tuple[tuple[int, ...], ...], n_units: int, device: torch.device) -> Tensor:
    """Row by row, the units that compete in each head.

    Example:
        >>> head_masks(((0,), (1, 2)), 3, torch.device("cpu")).int()
        tensor([[1, 0, 0],
                [0, 1, 1]], dtype=torch.int32)
    """
    masks = torch.zeros(len(heads), n_units, dtype=torch.bool)
    for row, units in enumerate(heads):
        masks[row, list(units)] = True
    return masks.to(device)


# Hyper-parameters ---------------------------------------------------------------------------------


class HyperParameter(NamedTuple):
    """A field of a method: what it is called, what it may be, and what it means."""

    name: str
    type: str
    default: Any
    doc: str


def fields_of(method: type[Any]) -> list[HyperParameter]:
    """The hyper-parameters of a method, in the order of its file.

    Example:
        >>> from engram.methods import METHODS
        >>> [f.name for f in fields_of(METHODS["gem"])]
        ['memory', 'margin', 'policy', 'ridge']
    """
    return list(_described(method)[0].values())


def usual_needs(name: str, method: type[Any]) -> tuple[str, ...]:
    """What a method needs with its hyper-parameters at their defaults, for people to read.

    Example:
        >>> from engram.methods import METHODS
        >>> usual_needs("er", METHODS["er"])  # its memory is filled when a task ends
        ('stored data', 'boundaries')
        >>> usual_needs("offline", METHODS["offline"])
        ('all tasks at once',)
    """
    needs_with = getattr(method, "needs_with", None)
    found: tuple[str, ...] = needs_with(validate_fields(name, method, {})) if needs_with else method.needs
    # No setting hides it, so it is nothing that a method could be refused for: it gets another stream.
    return (*found, "all tasks at once") if getattr(method, "joint", False) else found


def readable_type(annotation: Any) -> str:
    """A field's type as people would write it.

    Example:
        >>> readable_type(Annotated[float, "above 0"] | Literal["mean", "sum"])
        'float | mean | sum'
    """
    if get_origin(annotation) is Annotated:
        return readable_type(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(readable_type(part) for part in get_args(annotation))
    return "none" if annotation is type(None) else getattr(annotation, "__name__", str(annotation))


def validate_fields(name: str, method: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    """All hyper-parameters of a method: the given ones checked and converted, the others at their default.

    Text is converted to the field's type, so values may come from a command line.

    Example:
        >>> from engram.methods import METHODS
        >>> validate_fields("gem", METHODS["gem"], {"memory": "10"})["memory"]
        10
        >>> validate_fields("gem", METHODS["gem"], {"memory": 0})
        Traceback (most recent call last):
        engram.core.errors.InputError: method gem: memory=0 cannot be used: input should be greater than 0
    """
    own, model = _described(method)
    valid = ", ".join(own) or "none"
    mistakes = {
        key: f"method {name} has no field {key!r}: its fields are {valid}" for key in given if key not in own
    }
    try:
        checked = dict(model.model_validate({key: value for key, value in given.items() if key in own}))
    except ValidationError as error:
        for found in error.errors():
            where, message = str(found["loc"][0]), found["msg"]
            mistakes.setdefault(
                where,
                f"method {name}: {where}={given[where]!r} cannot be used: {message[0].lower()}{message[1:]}",
            )
    if mistakes:
        raise InputError("; ".join(mistakes.values()))
    return checked


def build_method(kind: type[Any], settings: Mapping[str, Any], **shared: Any) -> Method:
    """A method with its hyper-parameters, and those of the experiment's parts that it has fields for.

    Args:
        kind: The method's class.
        settings: All of its hyper-parameters.
        shared: What every `Learner` is given: `network`, `optimizer_spec`, `generator`.
    """
    taken = {item.name for item in fields(kind) if item.init}
    method: Method = kind(**{name: part for name, part in shared.items() if name in taken}, **settings)
    return method


_FINITE = ConfigDict(allow_inf_nan=False)
_KNOWN: dict[type[Any], tuple[dict[str, HyperParameter], type[BaseModel]]] = {}


def _described(method: type[Any]) -> tuple[dict[str, HyperParameter], type[BaseModel]]:
    """A method's fields by name, and what checks them: made once, for plans ask for many experiments."""
    if method not in _KNOWN:
        hints = get_type_hints(method, include_extras=True)
        shared = {item.name for item in fields(Learner)}
        own = {item.name: item.default for item in fields(method) if item.name not in shared and item.init}
        missing = [name for name, default in own.items() if default is MISSING]
        if missing:
            raise InputError(
                f"{method.__name__}: the field {missing[0]!r} needs a default value, or field(init=False) "
                "where it is no hyper-parameter"
            )
        described = {
            name: HyperParameter(
                name,
                readable_type(hints[name]),
                default,
                FieldInfo.from_annotation(hints[name]).description or "",
            )
            for name, default in own.items()
        }
        definitions: dict[str, Any] = {name: (hints[name], default) for name, default in own.items()}
        _KNOWN[method] = described, create_model("Fields", __config__=_FINITE, **definitions)
    return _KNOWN[method]
