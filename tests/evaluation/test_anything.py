"""Watch anything: names, loaders, mappings, own functions, scores, precision, state."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

import engram
from engram.core.errors import Damaged, InputError
from engram.core.scores import Scores
from engram.evaluation import right, score
from engram.evaluation.evaluator import Evaluation, Evaluator
from engram.record.run import Run

DRAW = torch.Generator().manual_seed(0)
LENGTHS = [3, 5, 2, 4, 4, 1, 6, 2, 3, 5]
TEXTS = [torch.randint(1, 9, (n,), generator=DRAW).tolist() for n in LENGTHS]
LABELS = [n % 3 for n in LENGTHS]


class Classifier(nn.Module):
    """A classifier of tokens with the interface of Hugging Face models."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 6), nn.Linear(6, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        embedded = self.embedding(input_ids) * mask[:, :, None]
        return {"logits": self.head(embedded.sum(1)), "hidden": embedded}


def padded(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """A collate function that pads each batch to its longest text."""
    longest = max(len(sample["input_ids"]) for sample in samples)
    ids = [sample["input_ids"] + [0] * (longest - len(sample["input_ids"])) for sample in samples]
    return {
        "input_ids": torch.tensor(ids),
        "attention_mask": (torch.tensor(ids) > 0).long(),
        "labels": torch.tensor([sample["label"] for sample in samples]),
    }


class Texts(Dataset[dict[str, Any]]):
    """A map-style data set of mappings, as those of Hugging Face are."""

    def __init__(self, length: int | None = None) -> None:
        self.length = length

    def __len__(self) -> int:
        return len(TEXTS)

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = TEXTS[index] if self.length is None else (TEXTS[index] * 9)[: self.length]
        return {"input_ids": ids, "label": LABELS[index], "text": "so it goes"}


def network() -> Classifier:
    torch.manual_seed(0)
    return Classifier()


def expected() -> list[bool]:
    """What the network gets right, text by text."""
    net = network().eval()
    with torch.no_grad():
        answers = [int(net(torch.tensor([ids]))["logits"].argmax()) for ids in TEXTS]
    return [answer == label for answer, label in zip(answers, LABELS, strict=True)]


def test_batches_of_different_lengths_as_the_loader_makes_them() -> None:
    loader = DataLoader(Texts(), batch_size=3, collate_fn=padded)
    watch = Evaluator({"texts": loader}, losses=True)
    watch(network(), learning="texts")
    assert watch.trace.right(0).tolist() == expected()
    drawn = Evaluator({"texts": loader}, subset=6, seed=3)
    drawn(network(), learning="texts")
    assert drawn.trace.right(0).tolist() == [expected()[place] for place in drawn.index[0].tolist()]


def test_reading_a_loader_leaves_random_states_as_they_are() -> None:
    own = torch.Generator().manual_seed(7)
    before, mine = torch.get_rng_state(), own.get_state()
    loader = DataLoader(Texts(), batch_size=3, collate_fn=padded, shuffle=True, generator=own)
    Evaluator([loader, DataLoader(Texts(), batch_size=4, collate_fn=padded, shuffle=True)])
    assert torch.equal(before, torch.get_rng_state()) and torch.equal(mine, own.get_state())


FORMS: dict[str, Callable[[], object]] = {
    "data set of mappings": lambda: Texts(length=4),
    "list of mappings": lambda: [Texts(length=4)[place] for place in range(len(TEXTS))],
    "mapping of tensors": lambda: {
        "input_ids": torch.tensor([Texts(4)[place]["input_ids"] for place in range(len(TEXTS))]),
        "labels": torch.tensor(LABELS),
    },
    "mapping of lists": lambda: {
        "input_ids": [Texts(4)[place]["input_ids"] for place in range(len(TEXTS))],
        "label": LABELS,
        "text": ["so it goes"] * len(TEXTS),
    },
    "pair": lambda: (
        torch.tensor([Texts(4)[place]["input_ids"] for place in range(len(TEXTS))]),
        torch.tensor(LABELS),
    ),
    "tuple with several inputs": lambda: (
        torch.tensor([Texts(4)[place]["input_ids"] for place in range(len(TEXTS))]),
        torch.ones(len(TEXTS), 4, dtype=torch.int64),
        torch.tensor(LABELS),
    ),
    "loader of triples": lambda: DataLoader(
        TensorDataset(
            torch.tensor([Texts(4)[place]["input_ids"] for place in range(len(TEXTS))]),
            torch.ones(len(TEXTS), 4, dtype=torch.int64),
            torch.tensor(LABELS),
        ),
        batch_size=4,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_samples_in_any_form(form: str) -> None:
    watch = Evaluator({"texts": FORMS[form]()})
    watch(network(), learning="texts")
    plain = Evaluator([FORMS["pair"]()])
    plain(network(), learning=0)
    assert watch.trace.bits == plain.trace.bits
    samples = watch.samples()
    assert samples is not None and samples.frame["label"].to_list() == LABELS


def test_names_are_used_everywhere(tmp_path: Path) -> None:
    pair = torch.eye(3), torch.tensor([0, 1, 1])
    watch = Evaluator({"dogs": pair, "cats": pair}, every=2)
    for task in ("dogs", "cats"):
        with pytest.warns(UserWarning, match="task dogs") if task == "cats" else nullcontext():
            for _ in range(3):
                watch(nn.Identity(), learning=task)
    watch.end(nn.Identity(), learning="cats")
    assert watch.accuracies() == {"dogs": pytest.approx(2 / 3), "cats": pytest.approx(2 / 3)}
    assert "task dogs 0.667" in repr(watch)
    with pytest.warns(UserWarning, match="the last update of task dogs was not evaluated"):
        run = watch.save(tmp_path / "mine")
    assert run.task_names == ["dogs", "cats"]
    assert "dogs" in run.report(tmp_path / "page.html").read_text()
    with pytest.raises(InputError, match="unknown task 'birds'"):
        watch(nn.Identity(), learning="birds")
    with pytest.raises(InputError, match="task cats has the label 4, but the network has 4 outputs"):
        Evaluator({"cats": (torch.eye(3), torch.tensor([0, 1, 4]))})(nn.Linear(3, 4), learning="cats")


def test_how_a_network_is_asked() -> None:
    class Pair(nn.Module):
        def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, None]:
            return first + second, None

    x, y = torch.eye(3), torch.tensor([0, 1, 2])
    watch = Evaluator([(x, x, y)], forward=lambda net, batch: net(batch[0], -2 * batch[1]))
    watch(Pair(), learning=0)
    assert watch.trace.correct == [0]
    plain = Evaluator([(x, x, y)])
    plain(Pair(), learning=0)
    assert plain.trace.correct == [3]


def test_what_counts_as_right_is_the_users_to_say() -> None:
    x = torch.tensor([[1.0], [2.0], [3.0]])
    y = torch.tensor([1.2, 2.0, 4.0])
    watch = Evaluator([(x, y)], right=right.within(0.5))
    watch(nn.Identity(), learning=0)
    assert watch.trace.right(0).tolist() == [True, True, False]
    own = Evaluator([(x, y)], right=lambda output, batch: (output[:, 0] > 1.5).tolist())
    own(nn.Identity(), learning=0)
    assert own.trace.right(0).tolist() == [False, True, True]


def test_generated_text_is_compared_with_the_label() -> None:
    class Generator(nn.Module):
        def generate(self, ids: Tensor) -> Tensor:
            return ids.flip(1)

    def decode(rows: object) -> list[str]:
        assert isinstance(rows, Tensor)
        return ["".join("abc"[token] for token in row) for row in rows.tolist()]

    data = {"input_ids": torch.tensor([[0, 1], [2, 1]]), "labels": ["ba", "cb"]}
    watch = Evaluator(
        {"texts": data},
        forward=lambda net, batch: net.generate(batch["input_ids"]),
        right=right.exact_match(decode),
    )
    watch(Generator(), learning="texts")
    assert watch.trace.right(0).tolist() == [True, False]


def losses_of(watch: Evaluator, steps: int = 3) -> nn.Module:
    net = nn.Linear(3, 3)
    torch.manual_seed(0)
    net.reset_parameters()
    for task in range(2):
        for step in range(steps):
            with torch.no_grad():
                net.weight.mul_(-1.5)
            watch(net, learning=task, last=step == steps - 1)
    return net


def pair(seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(20, 3, generator=draw), torch.randint(3, (20,), generator=draw)


def test_scores_are_recorded_beside_the_bits(tmp_path: Path) -> None:
    sets = {"a": pair(0), "b": pair(1)}
    both = Evaluator(sets, right=right.arg_max(), score=score.cross_entropy())
    plain = Evaluator(sets, losses=True)
    losses_of(both), losses_of(plain)
    assert both.trace == plain.trace
    readings = [value for *_, value in plain.readings]
    assert both.scores.means().tolist() == pytest.approx(readings)
    metrics = both.metrics()
    assert metrics["ACC"] == plain.metrics()["ACC"]
    final = [both.scores.mean(row) for row in (-2, -1)]
    assert metrics["score"] == pytest.approx(sum(final) / 2)
    own_end = both.scores.mean(2)
    assert metrics["score-FORG"] == pytest.approx(final[0] - own_end)
    run = both.save(tmp_path / "mine")
    again = Run.load(tmp_path / "mine")
    assert again.scores == both.scores == run.scores
    assert again.metrics["score-worst"] == metrics["score-worst"]
    frame = pl.read_parquet(tmp_path / "mine" / "scores.parquet")
    assert frame.columns == ["step", "learning", "task", "mean", "higher_is_better", "scores"]
    recorded = json.loads((tmp_path / "mine" / "result.json").read_text())["checksums"]
    assert "scores.parquet" in recorded
    (tmp_path / "mine" / "scores.parquet").write_bytes(b"nothing")
    with pytest.raises(Damaged, match=r"scores.parquet is damaged"):
        _ = Run.load(tmp_path / "mine").scores


def test_only_scores(tmp_path: Path) -> None:
    watch = Evaluator({"a": pair(0), "b": pair(1)}, score=score.cross_entropy())
    losses_of(watch)
    metrics = watch.metrics()
    assert set(metrics) == {"score", "score-worst", "score-FORG", "score-WF10", "score-WF100"}
    assert list(watch.latest_scores()) == ["a", "b"] and len(watch.trace) == 0
    with pytest.raises(InputError, match="there are no accuracies, only scores"):
        watch.accuracies()
    run = watch.save(tmp_path / "mine")
    for loaded in (run, Run.load(tmp_path / "mine")):
        with pytest.raises(InputError, match="ACC is defined for right and wrong answers, and only scores"):
            loaded.metric("ACC")
        with pytest.raises(InputError, match="has only scores, no right and wrong answers"):
            _ = loaded.curve
    assert [set(one.metrics) for one in engram.load(tmp_path)] == [set(metrics)]
    with pytest.raises(InputError, match="only scores"):
        run.report(tmp_path / "page.html")


def test_the_direction_of_a_score(tmp_path: Path) -> None:
    def minus(output: Any, batch: Any) -> Tensor:
        return -score.cross_entropy()(output, batch)

    down = Evaluator([pair(0), pair(1)], score=score.cross_entropy())
    up = Evaluator([pair(0), pair(1)], score=minus, higher_is_better=True)
    losses_of(down), losses_of(up)
    lower, higher = down.metrics(), up.metrics()
    assert higher["score"] == pytest.approx(-lower["score"])
    assert higher["score-worst"] == pytest.approx(-lower["score-worst"])
    for name in ("score-FORG", "score-WF10"):
        assert higher[name] == pytest.approx(lower[name])
    assert lower["score-worst"] >= max(down.scores.means()[3::2].tolist()) - 1e-6


def test_evaluations_are_told() -> None:
    told: list[Evaluation] = []

    def tell(evaluation: Evaluation) -> None:
        told.append(evaluation)
        torch.rand(5)

    watch = Evaluator({"a": pair(0)}, every=2, on_evaluate=tell)
    before = torch.get_rng_state()
    for _ in range(4):
        watch(nn.Identity(), learning="a")
    assert torch.equal(before, torch.get_rng_state())
    assert [(one.step, one.learning, one.accuracies) for one in told] == [
        (2, "a", watch.accuracies()),
        (4, "a", watch.accuracies()),
    ]

    def fail(evaluation: Evaluation) -> None:
        raise RuntimeError("no display")

    with pytest.raises(RuntimeError, match="no display"):
        Evaluator([pair(0)], on_evaluate=fail)(nn.Identity(), learning=0)


def test_a_state_continues_where_it_was_saved(tmp_path: Path) -> None:
    def make(**options: Any) -> Evaluator:
        ways: dict[str, Any] = {"right": right.arg_max(), "score": score.cross_entropy(), **options}
        return Evaluator({"a": pair(0), "b": pair(1)}, subset=10, **ways)

    whole, half = make(), make()
    nets = [nn.Linear(3, 3) for _ in range(4)]
    for number, net in enumerate(nets):
        whole(net, learning=number // 2)
    for number in (0, 1):
        half(nets[number], learning=number // 2)
    torch.save(half.state_dict(), tmp_path / "state.pt")
    again = make()
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for number in (2, 3):
        again(nets[number], learning=number // 2)
    assert again.trace == whole.trace and again.scores == whole.scores
    state = half.state_dict()
    for other, message in (
        (Evaluator({"a": pair(0), "c": pair(1)}, subset=10, score=score.cross_entropy()), "names of tasks"),
        (
            Evaluator({"a": pair(0), "b": pair(2)}, right=right.arg_max(), score=score.cross_entropy()),
            "test data",
        ),
        (Evaluator({"a": pair(0), "b": pair(1)}, subset=10), "so far recorded scores"),
    ):
        with pytest.raises(InputError, match=message):
            other.load_state_dict(state)
        assert other.step == 0
    states: list[tuple[Any, str]] = [
        ({**state, "version": 99}, "of version 99, and this engram reads up to"),
        ({"weights": 1}, "not the state of an evaluator: it has no 'plain'"),
        ([1], "but a list"),
    ]
    for wrong, message in states:
        with pytest.raises(InputError, match=message):
            make().load_state_dict(wrong)


def test_mixed_precision() -> None:
    seen: list[torch.dtype] = []

    def note(output: object, batch: object) -> Tensor:
        assert isinstance(output, Tensor)
        seen.append(output.dtype)
        return torch.ones(len(output), dtype=torch.bool)

    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    own = Evaluator([pair(0)], right=note)
    own(net, learning=0)
    with torch.autocast("cpu", torch.bfloat16):
        own(net, learning=0)
        Evaluator([pair(0)], right=note, autocast=False)(net, learning=0)
    Evaluator([pair(0)], right=note, autocast=torch.bfloat16)(net, learning=0)
    assert seen == [torch.float32, torch.bfloat16, torch.float32, torch.bfloat16]
    # The fast way of dense layers is not taken then.
    plain, mixed = (
        Evaluator([pair(0)], losses=True),
        Evaluator([pair(0)], losses=True, autocast=torch.bfloat16),
    )
    plain(net, learning=0), mixed(net, learning=0)
    assert plain.readings != mixed.readings


def test_an_evaluation_within_autocast_does_not_change_training() -> None:
    """Casts of weights that PyTorch keeps within autocast are neither used nor left behind."""

    def trained(*, watched: bool) -> list[Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))
        watch = Evaluator([pair(0)])
        x, y = pair(3)
        with torch.autocast("cpu", torch.bfloat16):
            if watched:
                watch.before(net)
            loss = functional.cross_entropy(net(x), y)
        loss.backward()
        return [weight.grad.clone() for weight in net.parameters() if weight.grad is not None]

    assert len(trained(watched=True)) == 4
    assert all(map(torch.equal, trained(watched=True), trained(watched=False)))


def test_a_compiled_network_with_mappings() -> None:
    watch = Evaluator({"texts": FORMS["mapping of tensors"]()})
    watch(torch.compile(network(), backend="eager"), learning="texts")
    plain = Evaluator({"texts": FORMS["mapping of tensors"]()})
    plain(network(), learning="texts")
    assert watch.trace.bits == plain.trace.bits


X, Y = torch.eye(3), torch.tensor([0, 1, 2])


@pytest.mark.parametrize(
    ("test_sets", "options", "message"),
    [
        ({"dogs": 3}, {}, "task dogs: cannot evaluate on a int"),
        ({1: (X, Y), "1": (X, Y)}, {}, "names of test sets must differ, got '1' twice"),
        ({"dogs": {"input_ids": X}}, {}, "a batch has no labels: give them under the key 'labels'"),
        ([[X, X]], {}, r"labels must be one number per sample"),
        ({"dogs": {"x": X, "labels": Y[:2]}}, {}, "task dogs: a batch has 3 inputs but 2 labels"),
        ([DataLoader(TensorDataset(X), batch_size=2)], {}, "a batch has no labels"),
        (Texts(), {}, "test sets must be a list with one per task, or a dict of names, got a Texts"),
        ([Texts()], {}, "samples have 'input_ids' of different shapes"),
        ({}, {}, "there is nothing to evaluate"),
        ([(X, Y)], {"right": 3}, "right must be a function, got int"),
        ([(X, Y)], {"score": lambda output, batch: output}, "say whether a higher score is better"),
        ([(X, Y)], {"higher_is_better": True}, "give score= as well"),
        ([(X, Y)], {"score": score.cross_entropy(), "losses": True}, "losses are those of classes"),
        ([(X, Y)], {"right": right.arg_max(), "units": [(0, 1)]}, "units are those of classes"),
        ([(X, Y)], {"right": right.arg_max(), "answers": True}, "answers=True records classes"),
        ([(X, Y)], {"score": score.cross_entropy(), "full_ends": True}, "full_ends is for right and wrong"),
        ([(X, Y)], {"right": right.arg_max(), "shuffle": True}, "shuffle mixes samples of all tasks"),
    ],
)
def test_bad_test_sets_are_refused_in_one_line(
    test_sets: Any, options: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        Evaluator(test_sets, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"right": lambda output, batch: output},
            r"one bool per sample, shape \[3\], got float32 of shape \[3, 3\]",
        ),
        ({"right": lambda output, batch: torch.ones(3)}, "got float32 of shape"),
        ({"right": lambda output, batch: torch.ones(2, dtype=torch.bool)}, r"got bool of shape \[2\]"),
        ({"right": lambda output, batch: True}, "got bool for task dogs"),
        ({"right": lambda output, batch: None}, "got NoneType for task dogs"),
        (
            {"score": lambda output, batch: torch.tensor([0.0, torch.nan, 1.0])},
            "finite numbers, got nan for sample 1",
        ),
        ({"score": lambda output, batch: torch.tensor([0.0, torch.inf, 1.0])}, "got inf for sample 1"),
        (
            {"score": lambda output, batch: output.mean()},
            r"one number per sample, shape \[3\], got float32 of shape \[\]",
        ),
        ({"forward": lambda net, batch: "text"}, "got a str: say what counts as right with right="),
    ],
)
def test_functions_that_return_something_else_are_refused(
    options: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    better = True if "score" in options else None
    watch = Evaluator({"dogs": (X, Y)}, higher_is_better=better, **options)
    with pytest.raises(InputError, match=message) as error:
        watch(nn.Identity(), learning="dogs")
    assert "\n" not in str(error.value)
    assert len(watch.trace) == len(watch.scores) == watch.evaluations == 0


def test_a_network_that_does_not_take_what_a_batch_has() -> None:
    data = {"pixels": X, "labels": Y}
    with pytest.raises(InputError, match=r"Linear.forward takes input, but a batch has the inputs pixels"):
        Evaluator({"dogs": data})(nn.Linear(3, 3), learning="dogs")


# Isolation ------------------------------------------------------------------------------------------


class Restless(Classifier):
    """Counts its calls, and draws random numbers."""

    calls = 0

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        self.calls += 1
        torch.rand(3)
        return super().forward(input_ids, attention_mask)


def meddle(net: Any, batch: Any) -> object:
    """Changes the network, the batch and the random state."""
    with torch.no_grad():
        net.head.bias.add_(1)
    outputs = net(batch["input_ids"])
    batch["input_ids"].zero_()
    torch.rand(2)
    return outputs


def learned(make: Callable[[], nn.Module], options: Mapping[str, Any] | None) -> dict[str, Any]:
    torch.manual_seed(0)
    net = make()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    watch = None
    if options is not None:
        watch = Evaluator({"texts": FORMS["mapping of tensors"]()}, **options)
    for _ in range(5):
        batch = padded([Texts()[place] for place in torch.randperm(10)[:4].tolist()])
        optimizer.zero_grad()
        functional.cross_entropy(net(batch["input_ids"])["logits"], batch["labels"]).backward()
        optimizer.step()
        if watch is not None:
            watch(net, learning="texts")
    return {**net.state_dict(), "calls": getattr(net, "calls", 0), "next": torch.rand(())}


WAYS: dict[str, Mapping[str, Any]] = {
    "mappings": {},
    "subset": {"subset": 5},
    "own functions": {"right": right.arg_max(), "score": score.cross_entropy()},
    "a forward that meddles": {"forward": meddle},
    "autocast": {"autocast": torch.bfloat16},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:.*changes itself in evaluation")
@pytest.mark.parametrize("make", [Classifier, Restless])
def test_watching_never_changes_training(way: str, make: Callable[[], nn.Module]) -> None:
    watched, alone = learned(make, WAYS[way]), learned(make, None)
    assert watched.keys() == alone.keys()
    for name, value in alone.items():
        same = torch.equal(watched[name], value) if isinstance(value, Tensor) else watched[name] == value
        assert same, name


@pytest.mark.filterwarnings("ignore:.*changes itself in evaluation")
def test_a_batch_that_was_written_to_is_made_again() -> None:
    watch = Evaluator({"texts": FORMS["mapping of tensors"]()}, forward=meddle)
    for _ in range(2):
        watch(network(), learning="texts")
    assert watch.trace.bits[0] == watch.trace.bits[1]


def test_empty_scores() -> None:
    assert len(Scores()) == 0 and Scores() == Scores()


@pytest.mark.parametrize(
    ("size", "lost"), [(20, "6 of 20 samples are"), (15, "1 of 15 samples is"), (14, "")]
)
def test_samples_that_a_loader_drops_are_noticed(size: int, lost: str) -> None:
    data = TensorDataset(torch.zeros(size, 4), torch.zeros(size))
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        Evaluator([DataLoader(data, batch_size=7, drop_last=True)])
        Evaluator([DataLoader(data, batch_size=7)])
    assert [str(warning.message) for warning in noticed] == [
        f"the DataLoader of a test set has drop_last=True: {lost} never evaluated; leave drop_last out"
    ][: bool(lost)]
    assert all(warning.filename == __file__ for warning in noticed)
