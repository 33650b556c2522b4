"""Laws that hold for every scenario, whatever it is made of."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from engram.core.errors import InputError
from engram.scenarios import (
    ClassSetting,
    DomainSetting,
    Scenario,
    Setting,
    TaskSetting,
    concat,
    domains,
    joint,
    online,
    permuted,
    prefix,
    queue,
    rotated,
    shuffled,
    slt,
    split,
    superclasses,
)
from engram.scenarios.build import SLT_CODES

SETTINGS: tuple[Setting, ...] = (
    TaskSetting(),
    DomainSetting(),
    DomainSetting(boundaries=False),
    ClassSetting(),
    ClassSetting(classes_known=True),
    ClassSetting(mask_evaluation=False),
)
seeds = st.integers(0, 2**63 - 1)


@st.composite
def scenarios(draw: st.DrawFn, setting: Setting | None = None) -> Scenario:
    chosen = setting or draw(st.sampled_from(SETTINGS))
    kind = draw(st.sampled_from(["split", "sizes", "permuted", "rotated", "superclasses", "queue"]))
    match kind:
        case "split":
            return split("mnist", draw(st.sampled_from([1, 2, 5])), setting=chosen, seed=draw(seeds))
        case "sizes":
            cuts = draw(st.sampled_from([(2, 3, 5), (9, 1), (10,), (1, 1, 1, 7)]))
            return split("digits", cuts, setting=chosen, order=draw(st.permutations(range(10))))
        case "permuted":
            first = draw(st.booleans())
            return permuted(
                "digits", draw(st.integers(1, 6)), setting=chosen, seed=draw(seeds), identity_first=first
            )
        case "rotated":
            angles = draw(st.lists(st.integers(-180, 180), min_size=1, max_size=6, unique=True))
            return rotated("digits", angles, setting=chosen)
        case "superclasses":
            return superclasses(setting=chosen, seed=draw(st.none() | seeds))
        case _:
            return queue(("mnist", "svhn"), setting=chosen)


any_scenario = scenarios() | st.sampled_from(
    [
        domains(("mnist", "svhn", "usps"), size=32),
        slt("DP10-10", "mnist"),
        slt("D9-1c", "svhn"),
        online(split("cifar100", 10, setting="class", seed=7)),
        joint(split("mnist", setting="task")),
    ]
)


@given(any_scenario)
def test_equal_scenarios_have_equal_hashes_and_survive_pickle_and_json(scenario: Scenario) -> None:
    json = TypeAdapter(Scenario)
    for copy in (pickle.loads(pickle.dumps(scenario)), json.validate_json(json.dump_json(scenario))):  # noqa: S301
        assert copy == scenario
        assert hash(copy) == hash(scenario)
        assert repr(copy) == repr(scenario)


@given(any_scenario)
def test_classes_seen_only_grow_and_end_with_all(scenario: Scenario) -> None:
    seen = scenario.classes_seen
    assert list(seen) == sorted(seen)
    assert seen[-1] == len({unit for task in scenario.tasks for unit in task.units})


@given(scenarios(setting=TaskSetting()))
def test_heads_of_the_task_setting_are_consecutive_and_cover_all_units(scenario: Scenario) -> None:
    for phase in range(len(scenario.phases)):
        assert [unit for head in scenario.heads(phase) for unit in head] == list(range(scenario.n_units))


@given(scenarios(setting=ClassSetting()), seeds)
def test_units_seen_in_the_class_setting_are_the_first_ones_in_any_order(
    scenario: Scenario, seed: int
) -> None:
    mixed = shuffled(scenario, seed)
    for phase, count in enumerate(mixed.classes_seen):
        assert mixed.heads(phase) == (tuple(range(count)),)


@given(scenarios(setting=DomainSetting()), seeds)
def test_domains_share_their_units_in_any_order(scenario: Scenario, seed: int) -> None:
    assert set(shuffled(scenario, seed).tasks) == set(scenario.tasks)


@given(any_scenario, st.data())
def test_a_prefix_of_a_prefix_is_a_prefix(scenario: Scenario, data: st.DataObject) -> None:
    longer = data.draw(st.integers(1, len(scenario.tasks)))
    shorter = data.draw(st.integers(1, longer))
    assert prefix(prefix(scenario, longer), shorter) == prefix(scenario, shorter)
    assert prefix(scenario, len(scenario.tasks)) == scenario


@given(any_scenario, st.data())
def test_joint_commutes_with_prefix_and_online(scenario: Scenario, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, len(scenario.tasks)))
    assert joint(prefix(scenario, n)) == prefix(joint(scenario), n)
    assert joint(online(scenario)) == online(joint(scenario))
    assert joint(joint(scenario)) == joint(scenario)
    assert online(online(scenario)) == online(scenario)


@given(any_scenario)
def test_joint_shows_all_classes_at_once_and_evaluates_the_same_tasks(scenario: Scenario) -> None:
    together = joint(scenario)
    assert together.classes_seen == (scenario.classes_seen[-1],)
    assert together.tasks == scenario.tasks


@given(any_scenario, seeds)
def test_shuffling_keeps_data_and_number_of_units_and_is_repeatable(scenario: Scenario, seed: int) -> None:
    mixed = shuffled(scenario, seed)
    assert mixed == shuffled(scenario, seed)
    assert sorted(map(repr, (task.source for task in mixed.tasks))) == sorted(
        map(repr, (task.source for task in scenario.tasks))
    )
    assert mixed.n_units == scenario.n_units
    assert mixed.phases == scenario.phases


def test_shuffling_does_shuffle() -> None:
    stream = split("cifar100", 5, setting="task")
    orders = {tuple(task.name for task in shuffled(stream, seed).tasks) for seed in range(5)}
    assert len(orders) == 5


@given(st.sampled_from(SETTINGS), st.data())
def test_concatenation_is_associative_and_undone_by_prefix(setting: Setting, data: st.DataObject) -> None:
    one, two, three = (data.draw(scenarios(setting)) for _ in range(3))
    whole = concat(one, two, three)
    assert whole == concat(concat(one, two), three) == concat(one, concat(two, three))
    assert replace(prefix(whole, len(one.tasks)), name=one.name) == one
    assert len(whole.phases) == len(one.phases) + len(two.phases) + len(three.phases)
    assert concat(one) == one


@given(st.sampled_from(SETTINGS), st.data())
def test_concatenated_units_are_new_except_for_domains(setting: Setting, data: st.DataObject) -> None:
    one, two = (data.draw(scenarios(setting)) for _ in range(2))
    units = concat(one, two).n_units
    if isinstance(setting, DomainSetting):
        assert units == max(one.n_units, two.n_units)
    else:
        assert units == one.n_units + two.n_units


def test_scenarios_that_differ_in_setting_or_passes_are_not_concatenated() -> None:
    stream = split("mnist", setting="task")
    with pytest.raises(InputError, match="differ in setting or passes"):
        concat(stream, split("mnist", setting="class"))
    with pytest.raises(InputError, match="differ in setting or passes"):
        concat(stream, online(stream))
    with pytest.raises(InputError, match="at least one"):
        concat()


@pytest.mark.parametrize("n", [0, -1, 6])
def test_a_prefix_must_exist(n: int) -> None:
    with pytest.raises(InputError, match=f"must have 1 to 5 tasks, got {n}$"):
        prefix(split("mnist", setting="task"), n)


@given(seeds, st.integers(1, 8), st.booleans())
def test_more_permutations_begin_with_the_same_ones(seed: int, n: int, identity_first: bool) -> None:
    few = permuted("mnist", n, setting="domain", seed=seed, identity_first=identity_first)
    many = permuted("mnist", 8, setting="domain", seed=seed, identity_first=identity_first)
    assert prefix(many, n) == few


@pytest.mark.parametrize("code", SLT_CODES)
def test_sequential_learning_tasks_use_all_ten_units_as_they_are(code: str) -> None:
    stream = slt(code, "fashion-mnist")
    assert stream.n_units == stream.classes_seen[-1] == 10
    assert all(task.units == task.source.classes for task in stream.tasks)
    assert stream.heads(0) == (tuple(range(10)),)
