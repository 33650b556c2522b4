"""Options: declared once, checked the same way wherever they come from."""

import pytest

from engram.core.errors import InputError
from engram.engine.options import all_options, checked, find_option, parts


def test_no_name_is_declared_in_two_parts() -> None:
    names = [name for options in parts().values() for name in options]
    assert len(names) == len(set(names)) == len(all_options())


def test_every_option_says_what_it_means() -> None:
    assert [name for name, option in all_options().items() if not option.description] == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lr", 0, "lr must be above 0, got 0"),
        ("lr", float("inf"), "lr must be .*, got inf"),
        ("lr", float("nan"), "lr must be .*, got nan"),
        ("lr", True, "lr must be a number, got True"),
        ("epochs", 0, "epochs must be at least 1, got 0"),
        ("epochs", 1.0, "epochs must be a whole number, got 1.0"),
        ("momentum", 1, "momentum must be at least 0 and below 1, got 1"),
        ("tasks", "al", "unknown tasks 'al'; did you mean 'all'"),
        ("tasks", "none", "tasks must be seen or all, got 'none'"),
        ("hidden", (3, 0), "hidden must be at least 1, got 3,0"),
        ("hidden", "a", "hidden must be whole numbers with commas, such as 400,400, got 'a'"),
        ("reset", 1, "reset must be true or false, got 1"),
        ("budget_bytes", 0, "budget_bytes must be at least 1, got 0"),
        ("learning_rate", 1, "unknown option 'learning_rate'"),
    ],
)
def test_a_value_that_cannot_be_used(name: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        checked({name: value})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("lr", "1e-3", 0.001),
        ("hidden", "40x30", (40, 30)),
        ("hidden", "", ()),
        ("epochs", "3", 3),
        ("stem", "32", "32"),
    ],
)
def test_text_becomes_the_value(name: str, text: str, value: object) -> None:
    assert find_option(name).check(text, text=True) == value


def test_whole_numbers_stay_whole_and_zero_means_all() -> None:
    assert type(find_option("lr").check(1)) is int
    assert find_option("subset").check(0) is None
    assert find_option("stem").check(32) == "32"
