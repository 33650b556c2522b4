"""Keeping the answers of an older network: distillation losses."""

import torch
from torch import Tensor
from torch.nn import functional


def distillation(
    current: Tensor,
    previous: Tensor,
    *,
    temperature: float,
    squared: bool = False,
    form: str = "kl",
    mean_over_units: bool = False,
) -> Tensor:
    """How far the current answers are from the previous ones, both softened by the temperature.

    Per sample −Σ q·log p (`form="cross-entropy"`), or that minus the entropy of q (`form="kl"`, so equal
    answers cost nothing), q and p being the softmax of the previous and the current scores divided by the
    temperature; then the mean over samples. If there are more current units than previous ones, the
    further units get the target 0 (class setting of van de Ven's code).

    Args:
        current: Scores of the network that learns, samples × units.
        previous: Scores of the older network on the same samples, for the first of those units.
        temperature: Above 1 softens the answers.
        squared: Multiply by temperature², so that gradients keep their size.
        form: `kl` or `cross-entropy`.
        mean_over_units: Divide by the number of units as well (van de Ven's code of 2018).

    Example:
        >>> now, then = torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([[2.0, 0.0, -1.0]])
        >>> float(distillation(now, then, temperature=2.0))
        0.0
    """
    target = functional.softmax(previous / temperature, dim=1)
    answer = functional.log_softmax(current / temperature, dim=1)[:, : target.shape[1]]
    loss = -(target * answer).sum(dim=1)
    if form == "kl":
        # Softmax may underflow to 0, and 0 · log 0 counts as 0.
        loss = loss + torch.special.xlogy(target, target).sum(dim=1)
    if mean_over_units:
        loss = loss / current.shape[1]
    scale = temperature**2 if squared else 1.0
    return scale * loss.mean()
