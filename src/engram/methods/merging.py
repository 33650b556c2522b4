"""Networks merged into one (incremental moment matching), and ways to keep them close to each other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from engram.core.values import Batch
from engram.methods.importance import evaluating
from engram.methods.losses import Terms
from engram.models.heads import allowed_units, mask_scores
from engram.models.network import Network

Weights = dict[str, Tensor]
"""All parameters and buffers of a network, by name."""

HEAD = ("head.weight", "head.bias")
"""The parameters that have one row per output unit."""

Balance = float | Literal["equal"]

LatestShare = Annotated[
    Annotated[float, Field(ge=0, le=1)] | Literal["equal"],
    Field(description="weight of the latest network (α), the others sharing the rest; or all equal"),
]
WeightTransfer = Annotated[bool, Field(description="start a task from the weights of the one before")]
L2Transfer = Annotated[float, Field(ge=0, description="strength of the pull to those weights")]
DropTransfer = Annotated[float, Field(ge=0, lt=1, description="how often a unit falls back to them")]


def shares(count: int, balance: Balance) -> list[float]:
    """The shares of `count` networks in a merged one, oldest first.

    Either all equal (`"equal"`), or `balance` (α in the papers) for the latest network and the rest in equal
    parts for the others; a single network always has the share 1.

    Example:
        >>> shares(2, 0.25), shares(3, 0.5), shares(4, "equal")
        ([0.75, 0.25], [0.25, 0.25, 0.5], [0.25, 0.25, 0.25, 0.25])
    """
    if count == 1 or balance == "equal":
        return [1 / count] * count
    return [(1 - balance) / (count - 1)] * (count - 1) + [balance]


def separate_units(batch: Batch) -> set[int]:
    """The output units that a batch trains, where there are several heads; empty where all share one.

    Example:
        >>> separate_units(Batch(torch.zeros(1, 1), torch.tensor([3]), heads=((0, 1), (2, 3)), head=1))
        {2, 3}
        >>> separate_units(Batch(torch.zeros(1, 1), torch.tensor([3]), heads=((0, 1, 2, 3),)))
        set()
    """
    if len(batch.heads) == 1:
        return set()
    heads = batch.head.unique().tolist() if isinstance(batch.head, Tensor) else [batch.head]
    return {unit for head in heads for unit in batch.heads[head]}


def unit_shares(weighted: Sequence[float], trained: Sequence[Set[int]], n_units: int) -> Tensor:
    """The share of each network in each output unit, networks × units, where networks trained separate heads.

    A unit is shared by the networks that trained it, in proportion to their shares, or in equal parts where
    all of these are 0. A unit that no network trained is shared by all.

    Args:
        weighted: The share of each network; the shares sum to 1.
        trained: The units that each network trained; empty if it trained all.
        n_units: How many there are.

    Example:
        >>> unit_shares([0.75, 0.25], [{0}, {1}], 3).tolist()
        [[1.0, 0.0, 0.75], [0.0, 1.0, 0.25]]
    """
    chosen = torch.tensor(weighted, dtype=torch.float64)[:, None].expand(-1, n_units)
    mine = torch.tensor([[not units or unit in units for unit in range(n_units)] for units in trained])
    mine = mine | ~mine.any(dim=0)
    among = torch.where(mine, chosen, 0.0)
    among = torch.where(among.sum(dim=0) > 0, among, mine.double())
    return among / among.sum(dim=0)


def merge_means(
    networks: Sequence[Weights], weighted: Sequence[float], *, trained: Sequence[Set[int]] = ()
) -> Weights:
    """The weighted mean of networks, Σ α_k θ_k (mean-IMM; Lee et al. 2017).

    If only one network has a share above 0, its weights are returned unchanged. Integer buffers (counters)
    are those of the last network with a share above 0. Output units that not all networks trained are merged
    among those that did: see `unit_shares`.

    Args:
        networks: The parameters and buffers of each network.
        weighted: The share of each network; the shares sum to 1.
        trained: The output units that each network trained, where heads are separate.

    Example:
        >>> first, second = {"w": torch.tensor([1.0, -2.0])}, {"w": torch.tensor([3.0, 0.0])}
        >>> merge_means([first, second], [0.75, 0.25])["w"]
        tensor([ 1.5000, -1.5000])
        >>> first, second = {"head.bias": torch.tensor([1.0, -2.0])}, {"head.bias": torch.tensor([3.0, 0.0])}
        >>> merge_means([first, second], [0.75, 0.25], trained=[{0}, {1}])["head.bias"]
        tensor([1., 0.])
    """
    counting = [(net, share) for net, share in zip(networks, weighted, strict=True) if share > 0]
    last = counting[-1][0]
    if len(counting) == 1:
        merged = {name: tensor.clone() for name, tensor in last.items()}
    else:
        merged = {
            name: torch.stack([share * net[name] for net, share in counting]).sum(dim=0)
            if tensor.is_floating_point()
            else tensor.clone()
            for name, tensor in last.items()
        }
    for name in HEAD if any(trained) else ():
        if name in merged:
            rows = torch.stack([net[name] for net in networks])
            parts = unit_shares(weighted, trained, rows.shape[1]).to(rows.device)
            parts = parts.view(*parts.shape, *[1] * (rows.dim() - 2))
            merged[name] = (parts * rows).sum(dim=0).to(rows.dtype)
    return merged


def merge_modes(
    networks: Sequence[Weights],
    importances: Sequence[Weights],
    weighted: Sequence[float],
    *,
    damping: float = 1e-8,
) -> Weights:
    """Networks merged by importance, Σ α_k F_k θ_k / Σ α_k F_k, for each weight (mode-IMM; Lee et al. 2017).

    Buffers (such as those of batch norm) have no importance and are merged as in `merge_means`. If only one
    network has a share above 0, its weights are returned unchanged. The output units of a separate head have
    no importance for the networks that did not train it, so that these hardly count.

    Args:
        networks: The parameters and buffers of each network.
        importances: The Fisher information of the parameters of each network.
        weighted: The share of each network; the shares sum to 1.
        damping: Added to the Fisher information, so that weights that matter to no network are averaged.

    Example:
        >>> first, second = {"w": torch.tensor([1.0, -2.0])}, {"w": torch.tensor([3.0, 0.0])}
        >>> fisher = [{"w": torch.tensor([0.2, 0.0])}, {"w": torch.tensor([0.1, 0.4])}]
        >>> [round(value, 6) for value in merge_modes([first, second], fisher, [0.5, 0.5])["w"].tolist()]
        [1.666667, -0.0]
    """
    merged = merge_means(networks, weighted)
    counting = [place for place, share in enumerate(weighted) if share > 0]
    if len(counting) == 1:
        return merged
    for name in importances[0]:
        sure = [weighted[place] * (importances[place][name].double() + damping) for place in counting]
        pulled = [weight * networks[place][name] for weight, place in zip(sure, counting, strict=True)]
        merged[name] = (torch.stack(pulled).sum(dim=0) / torch.stack(sure).sum(dim=0)).to(merged[name].dtype)
    return merged


def with_frozen(merged: Weights, network: nn.Module) -> Weights:
    """Merged weights in which the parameters that do not learn (`requires_grad=False`) are the network's own.

    They are the same in all networks, and a mean of equal numbers may differ from them in the last bit.
    """
    frozen = {name: p.detach().clone() for name, p in network.named_parameters() if not p.requires_grad}
    return {**merged, **frozen}


def weights_of(network: nn.Module) -> Weights:
    """A copy of all parameters and buffers."""
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


def with_weights(network: nn.Module, weights: Weights) -> nn.Module:
    """A copy of the network with other parameters and buffers."""
    other = copy.deepcopy(network).requires_grad_(False)
    other.load_state_dict(weights)
    return other


def balance_curve(
    network: nn.Module,
    merge: Callable[[float], Weights],
    batches: Iterable[Batch],
    *,
    balances: Sequence[float] | None = None,
) -> list[tuple[float, float]]:
    """The accuracy of merged networks over the balance α.

    Pfülb & Gepperth (2019) report its highest point.

    Args:
        network: A network of the right shape; it is not changed.
        merge: From a balance to merged weights.
        batches: The samples, answered among the units of their heads.
        balances: The balances (default: 0 to 1 in steps of .01).

    Example:
        >>> net = nn.Linear(1, 2, bias=False)
        >>> batches = [Batch(torch.ones(1, 1), torch.tensor([1]), heads=((0, 1),))]
        >>> def merge(balance: float) -> Weights:
        ...     return {"weight": torch.tensor([[0.4], [balance]])}
        >>> balance_curve(net, merge, batches, balances=(0.0, 0.5, 1.0))
        [(0.0, 0.0), (0.5, 1.0), (1.0, 1.0)]
    """
    samples = list(batches)
    points = [step / 100 for step in range(101)] if balances is None else balances
    return [(balance, _accuracy(with_weights(network, merge(balance)), samples)) for balance in points]


def _accuracy(network: nn.Module, batches: Sequence[Batch]) -> float:
    right = 0
    with evaluating(network), torch.no_grad():
        for batch in batches:
            scores = network(batch.x)
            answers = mask_scores(scores, allowed_units(batch, scores.shape[1])).argmax(dim=1)
            right += int((answers == batch.y).sum())
    return right / sum(len(batch) for batch in batches)


# Transfer -----------------------------------------------------------------------------------------


class Transferring(Protocol):
    """A method whose networks start from those of the previous tasks, `ends`, and stay close to them."""

    network: Network
    generator: torch.Generator
    l2_transfer: L2Transfer
    drop_transfer: DropTransfer
    ends: list[Weights]


def transferred_loss(method: Transferring, loss: Callable[[], Terms]) -> Terms:
    """The loss of the new samples, with drop-transfer and L2-transfer from the previous network if any."""
    before = method.ends[-1] if method.ends else None
    with transfer_dropout(method.network, before, rate=method.drop_transfer, generator=method.generator):
        terms = loss()
    if before is None or method.l2_transfer == 0:
        return terms
    return terms.plus(method.l2_transfer * squared_distance(method.network, before))


def squared_distance(network: nn.Module, weights: Weights) -> Tensor:
    """The squared distance of the network's parameters from these weights: the penalty of L2-transfer.

    Example:
        >>> net = nn.Linear(1, 1, bias=False)
        >>> previous = {"weight": net.weight.detach() + 3}
        >>> round(squared_distance(net, previous).item(), 4)
        9.0
    """
    away = [(p - weights[name]).square().sum() for name, p in network.named_parameters()]
    return torch.stack(away).sum()


@contextmanager
def transfer_dropout(
    network: Network, before: Weights | None, *, rate: float, generator: torch.Generator
) -> Iterator[None]:
    """Dropout that falls back to the previous network instead of 0 (drop-transfer), in all but the head.

    With probability `rate`, a unit of a dense or convolutional layer has, before its nonlinearity, the value
    z_before that the previous weights give for the same inputs; otherwise it has z/(1 − rate) −
    z_before·rate/(1 − rate), so that its mean is z. Without a previous network this is plain dropout, and a
    rate of 0 changes nothing. Units are dropped for each sample separately, as in the code of Lee et al.;
    inputs are not dropped.

    Args:
        network: The network; its layers have hooks inside the context only.
        before: The weights of the previous network.
        rate: The probability that a unit falls back.
        generator: Draws the units that are dropped.

    Example:
        >>> net, draws = Network(nn.Linear(1, 3), nn.Linear(3, 2)), torch.Generator().manual_seed(0)
        >>> x = torch.ones(1, 1)
        >>> with transfer_dropout(net, weights_of(net), rate=0.5, generator=draws):
        ...     bool((net.features(x) == net.features(x)).all())  # falls back to the same
        True
        >>> with transfer_dropout(net, None, rate=0.5, generator=draws):
        ...     bool((net.features(x) == 0).any())
        True
    """
    hooks = []
    layers = network.features.named_modules(prefix="features") if rate > 0 else ()
    for path, layer in layers:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            old = None
            if before is not None:
                old = with_weights(layer, {name: before[f"{path}.{name}"] for name in layer.state_dict()})
            hook = partial(_dropped, old=old, rate=rate, generator=generator)
            hooks.append(layer.register_forward_hook(hook))
    try:
        yield
    finally:
        for hooked in hooks:
            hooked.remove()


def _dropped(
    layer: nn.Module,
    inputs: tuple[Tensor, ...],
    result: Tensor,
    *,
    old: nn.Module | None,
    rate: float,
    generator: torch.Generator,
) -> Tensor:
    zero = torch.zeros_like(result) if old is None else old(*inputs)
    kept = torch.rand(result.shape, generator=generator).to(result.device) >= rate
    return zero + kept * (result - zero) / (1 - rate)
