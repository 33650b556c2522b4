"""GDumb: store greedily, and fit a network to the memory alone when an answer is needed."""

import copy
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, final

import torch
from pydantic import Field
from torch import Tensor, nn

from engram.core.errors import NonFinite
from engram.core.values import Batch, TaskInfo
from engram.methods import method
from engram.methods.augment import BLACK, Black, black_of, crop_and_flip
from engram.methods.losses import cross_entropy
from engram.methods.memory import Greedy
from engram.methods.optimizers import SGD
from engram.methods.state import State, capture, kept_bytes, restore
from engram.models.heads import head_of_each
from engram.models.network import Network


@method(
    "gdumb",
    family="rehearsal",
    paper="Prabhu et al. (2020)",
    needs=("stored data",),
    bytes_per_value=4,
    own_augmentation=True,
)
@final
@dataclass(kw_only=True, eq=False)
class GDumb:
    """Keep a greedily balanced memory; whenever an answer is needed, fit a fresh network to it alone.

    An update only stores samples: a sample is kept while its class has fewer than memory / (classes seen)
    samples, and replaces a random sample of the largest class when the memory is full. `predictor` fits the
    initial network of the experiment to the memory: SGD with momentum, the learning rate going from `lr` to
    `lr_min` in cosine cycles of 1, 2, 4, … epochs after one epoch at a tenth, gradients clipped. The fitted
    network depends on the memory alone and is kept until the memory changes. Every change costs a whole fit
    at the next evaluation, so evaluate rarely. A fit takes `epochs` · memory / `batch` updates of `batch`
    samples (30 · 2,000 / 16 = 3,750 with the defaults). In the account of a run an update costs no
    operations; those of fits are the work for answers, and their time counts as training. The optimiser of
    the experiment is not used. Where no class is new (domain setting) a full memory never changes.

    Source: Prabhu et al. (2020) and their code, which makes 256 passes with cut-mix at .5. The defaults are
    those of Michel et al. (2023): 30 passes, no cut-mix; their code keeps a reservoir instead. Both crop and
    flip photographs (`augment`), which does not suit digits and letters and is off by default.
    """

    network: Network
    generator: torch.Generator = field(default_factory=torch.Generator)

    memory: Annotated[int, Field(gt=0, description="samples kept in total")] = 2000
    epochs: Annotated[int, Field(gt=0, description="passes over the memory in a fit")] = 30
    batch: Annotated[int, Field(gt=0, description="samples in each update of a fit")] = 16
    lr: Annotated[float, Field(gt=0, description="highest learning rate of a fit")] = 0.05
    lr_min: Annotated[float, Field(ge=0, description="lowest learning rate of a fit")] = 0.0005
    momentum: Annotated[float, Field(ge=0, lt=1, description="momentum of a fit")] = 0.9
    weight_decay: Annotated[float, Field(ge=0, description="weight decay of a fit")] = 1e-6
    clip: Annotated[float, Field(gt=0, description="largest norm of a fit's gradients")] = 10.0
    cutmix: Annotated[
        float,
        Field(
            ge=0, le=1, description="share of batches of images that are cut and mixed (.5 in Prabhu et al.)"
        ),
    ] = 0.0
    augment: Annotated[
        bool, Field(description="crop and flip images at random in every update of a fit (photographs)")
    ] = False

    def __post_init__(self) -> None:
        self.store = Greedy(self.memory, self.generator)
        self.heads: list[list[int]] = []
        self.fitted: nn.Module | None = None
        self.black: Black = BLACK

    def begin_task(self, task: TaskInfo) -> None:
        """Nothing to prepare: boundaries are not used."""

    def observe(self, batch: Batch) -> float:
        """Offer the samples to the memory; nothing is learned, so the loss is 0."""
        heads = [list(units) for units in batch.heads]
        if self.store.add(batch) or heads != self.heads:
            self.fitted = None
        self.heads = heads
        return 0.0

    def end_task(self, batches: Iterable[Batch]) -> None:
        """Nothing to do: samples are stored by `observe`."""

    def predictor(self) -> nn.Module:
        """A network fitted to the memory."""
        if self.fitted is None:
            self.fitted = self._fit()
        return self.fitted

    def state_dict(self) -> State:
        """The memory, and the network that was fitted to it: a resumed run does not fit it again."""
        return capture(self)

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        restore(self, state)

    def kept_bytes(self) -> int:
        """Bytes of the memory, and of the initial weights, from which every fit starts."""
        return kept_bytes(self, beside=("fitted",))

    def _fit(self) -> nn.Module:
        network = copy.deepcopy(self.network)
        if len(self.store) == 0:
            return network
        heads = tuple(tuple(units) for units in self.heads)
        # A separate generator, because an evaluation must not change what is stored next.
        seed = self.generator.initial_seed()
        chance = torch.Generator().manual_seed(seed)
        device = next(network.parameters()).device
        with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
            torch.manual_seed(seed)
            optimizer = SGD(
                network.parameters(), lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay
            )
            network.train()
            for epoch in range(self.epochs):
                for group in optimizer.param_groups:
                    group["lr"] = warm_restarts(epoch, self.lr, self.lr_min)
                for rows in _batches(len(self.store), self.batch, chance):
                    optimizer.zero_grad(set_to_none=True)
                    loss = self._loss(network, self.store.samples.batch(rows, heads), chance)
                    if not math.isfinite(value := loss.item()):
                        hint = f"in pass {epoch + 1} of gdumb's fit; set its lr below {self.lr}"
                        raise NonFinite("loss", value, hint)
                    loss.backward()
                    nn.utils.clip_grad_norm_(network.parameters(), self.clip)
                    optimizer.step()
        return network

    def _loss(self, network: nn.Module, batch: Batch, chance: torch.Generator) -> Tensor:
        if self.augment and batch.x.dim() == 4:
            black = black_of(batch, self.black)
            batch = replace(batch, x=crop_and_flip(batch.x, chance, margin=4, black=black))
        mixes = self.cutmix > 0 and batch.x.dim() == 4
        if not mixes or float(torch.rand((), generator=chance)) >= self.cutmix:
            return cross_entropy(network(batch.x), batch)
        other = torch.randperm(len(batch), generator=chance)
        x, share = cut_and_mix(batch.x, batch.x[other], chance)
        logits = network(x)
        pasted = replace(batch, y=batch.y[other], head=head_of_each(batch)[other])
        return share * cross_entropy(logits, batch) + (1 - share) * cross_entropy(logits, pasted)


def warm_restarts(epoch: int, lr: float, lr_min: float) -> float:
    """The learning rate of an epoch: a tenth in the first, then cosine cycles of 1, 2, 4, … epochs.

    Example:
        >>> [round(warm_restarts(epoch, 0.05, 0.0005), 6) for epoch in range(6)]
        [0.005, 0.05, 0.05, 0.02525, 0.05, 0.042751]
    """
    if epoch == 0:
        return lr / 10
    length = 1 << (epoch.bit_length() - 1)
    return lr_min + (lr - lr_min) * (1 + math.cos(math.pi * (epoch - length) / length)) / 2


def cut_and_mix(x: Tensor, other: Tensor, generator: torch.Generator) -> tuple[Tensor, float]:
    """Images with a rectangle of other images pasted in, and the share of the area that is unchanged.

    The rectangle's area is a share drawn uniformly from 0 to 1 (a Beta distribution with α = 1), its centre
    is drawn uniformly, and what would lie outside of the image is cut off.

    Example:
        >>> mixed, share = cut_and_mix(torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8), torch.Generator())
        >>> float(mixed.mean()) == 1 - share
        True
    """
    height, width = x.shape[-2:]
    area, down, across = torch.rand(3, generator=generator).tolist()
    side = math.sqrt(area)
    top, bottom = _span(down, side, height)
    left, right = _span(across, side, width)
    mixed = x.clone()
    mixed[..., top:bottom, left:right] = other[..., top:bottom, left:right]
    return mixed, 1 - (bottom - top) * (right - left) / (height * width)


def _span(centre: float, side: float, length: int) -> tuple[int, int]:
    middle, half = int(centre * length), int(side * length) // 2
    return max(middle - half, 0), min(middle + half, length)


def _batches(samples: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """All rows in random order; a last batch of one is merged with the previous one, for batch norm."""
    pieces = list(torch.randperm(samples, generator=generator).split(size))
    if len(pieces) > 1 and len(pieces[-1]) == 1:
        pieces[-2:] = [torch.cat(pieces[-2:])]
    return iter(pieces)
