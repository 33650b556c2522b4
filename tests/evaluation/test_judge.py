"""What is right: outputs that can be read, and those that are refused."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from engram.core.errors import InputError
from engram.evaluation.evaluator import Evaluator

Y = torch.tensor([0, 1, 1, 0, 1, 1])
LOGITS = torch.tensor([-2.0, 3.0, 0.5, -0.1, 4.0, -1.0])


class Answers(nn.Module):
    """Returns the same outputs whatever it is asked."""

    def __init__(self, outputs: object) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, x: Tensor) -> object:
        return self.outputs


def evaluated(outputs: object, y: Tensor = Y, **options: object) -> Evaluator:
    watch = Evaluator([(torch.zeros(len(y), 1), y)], losses=True, **options)  # type: ignore[arg-type]
    watch(Answers(outputs), learning=0)
    return watch


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
@pytest.mark.parametrize("labels", [Y, Y.float(), Y.bool(), Y[:, None], Y.float()[:, None]])
def test_one_logit_is_a_binary_classifier(shape: tuple[int, ...], labels: Tensor) -> None:
    watch = evaluated(LOGITS.reshape(shape), labels)
    assert watch.trace.right(0).tolist() == [True, True, True, True, True, False]
    expected = functional.binary_cross_entropy_with_logits(LOGITS, Y.float())
    assert watch.readings[0][-1] == pytest.approx(float(expected))


def test_a_perfect_binary_model_is_perfect_on_tasks_of_one_class_each() -> None:
    x = torch.tensor([[-3.0], [-1.0], [2.0]])
    watch = Evaluator([(x[:2], torch.tensor([0, 0])), (x[2:], torch.tensor([1]))], tasks="all")
    watch(nn.Identity(), learning=0)
    assert watch.accuracies() == {0: 1.0, 1: 1.0}


def test_an_undecided_or_nan_logit() -> None:
    watch = evaluated(torch.tensor([0.0, 0.0, torch.nan, torch.nan, 1.0, 1.0]))
    assert watch.trace.right(0).tolist() == [True, False, False, False, True, True]


def test_probabilities_of_one_output_are_noticed() -> None:
    watch = evaluated(LOGITS.sigmoid())
    with pytest.warns(UserWarning, match="return logits, before the sigmoid"):
        watch.metrics()
    with pytest.warns(UserWarning, match="as probabilities are"):
        watch.run(description={"id": "mine", "label": "mine"})
    evaluated(LOGITS).metrics()


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (("text",), "a network must return a tensor of scores, .* got a tuple: say what counts as right"),
        ({"a": LOGITS, "b": LOGITS}, "got a dict: say what counts as right"),
        (None, "got a NoneType: say what counts as right with right=, or how the network is asked"),
        (torch.zeros(6, 2, 3), r"one row of scores per sample, shape \[6, classes\], got shape \[6, 2, 3\]"),
        (torch.zeros(2, 6), r"shape \[6, classes\], got shape \[2, 6\]"),
        (torch.zeros(6, 0), r"shape \[6, classes\], got shape \[6, 0\]"),
        (torch.tensor(0.5), r"got shape \[\]"),
        (torch.zeros(6, dtype=torch.int64), "got one int64 per sample: return scores before the argmax"),
    ],
)
def test_outputs_that_are_no_scores_are_refused(outputs: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluated(outputs)


class Output:
    """What Hugging Face models return, as far as it matters here."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


@pytest.mark.parametrize(
    "outputs",
    [
        (LOGITS, torch.zeros(3)),
        {"logits": LOGITS, "hidden": torch.zeros(6, 9)},
        {"out": LOGITS},
        Output(LOGITS),
    ],
)
def test_scores_inside_other_outputs_are_found(outputs: object) -> None:
    assert evaluated(outputs).trace == evaluated(LOGITS).trace


@pytest.mark.parametrize("outputs", [torch.zeros(6, 3), torch.zeros(6, 1), torch.zeros(6)])
def test_labels_beyond_the_outputs_are_refused(outputs: Tensor) -> None:
    n = 3 if outputs.shape[-1] == 3 and outputs.ndim == 2 else 1
    message = (
        f"task 0 has the label 7, but the network has {n} outputs?, for labels 0 to {n - 1}: give it one"
    )
    with pytest.raises(InputError, match=message):
        evaluated(outputs, torch.tensor([0, 1, 2, 7, 0, 0]))


def test_labels_beyond_the_outputs_in_a_later_task_are_named() -> None:
    x, y = torch.zeros(2, 3), torch.tensor([0, 1])
    watch = Evaluator([(x, y), (x, y + 2)])
    watch(nn.Linear(3, 2), learning=0)
    with pytest.raises(InputError, match="task 1 has the label 3, but the network has 2 outputs"):
        watch(nn.Linear(3, 2), learning=1)


def test_one_class_and_one_output_say_nothing() -> None:
    with pytest.raises(InputError, match="all labels are 0 and the network has one output"):
        evaluated(LOGITS, torch.zeros(6))


def test_answers_among_units_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError, match="answers of task 0 are sought among output unit 5 and others"):
        evaluated(torch.zeros(6, 3), units=[(0, 5)])
    with pytest.raises(InputError, match=r"got shape \[6\]"):
        evaluated(LOGITS, units=[(0, 1)])
    with pytest.raises(InputError, match="one entry per task, got 2 for 1 tasks"):
        evaluated(LOGITS, units=[(0, 1), (2, 3)])
    with pytest.raises(InputError, match="units of task 0 must be output units counted from 0"):
        evaluated(LOGITS, units=[()])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, -1]), "class numbers from 0 on, task 0 has the label -1: leave such samples out"),
        (torch.tensor([0.0, 0.7]), "labels must be whole numbers, got 0.7"),
        (torch.tensor([0.0, torch.nan]), "labels must be whole numbers, got nan"),
        (torch.eye(2), r"one number per sample, got shape \[2, 2\]: give class numbers, y.argmax\(1\)"),
    ],
)
def test_labels_that_are_no_class_numbers_are_refused(labels: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Evaluator([(torch.zeros(2, 3), labels)])
    data = TensorDataset(torch.zeros(2, 3), labels)
    with pytest.raises(InputError, match=r"labels must be|class numbers"):
        Evaluator([data])


def test_a_network_per_task_is_judged_task_by_task() -> None:
    class Routed(nn.Module):
        def route(self, task: int) -> nn.Module:
            return Answers(torch.zeros(2, 2 if task == 0 else 3))

    x = torch.zeros(2, 3)
    watch = Evaluator([(x, torch.tensor([0, 1])), (x, torch.tensor([0, 3]))], tasks="all")
    with pytest.raises(InputError, match="task 1 has the label 3, but the network has 3 outputs"):
        watch(Routed(), learning=0)
