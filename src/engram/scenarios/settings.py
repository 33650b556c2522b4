"""Settings by name: what learner and evaluator may know."""

from collections.abc import Sequence
from typing import get_args

from engram.core.errors import InputError, unknown_name
from engram.scenarios.values import ClassSetting, DomainSetting, Setting, SettingName, TaskSetting

SETTING_NAMES: tuple[SettingName, ...] = get_args(SettingName)


def setting_of(
    setting: Setting | SettingName, *, what: str, allowed: Sequence[str] = SETTING_NAMES
) -> Setting:
    """The setting itself, where a name stands for the setting with its usual options.

    Args:
        setting: A setting, or `"task"`, `"domain"` or `"class"`.
        what: What the setting is for, for messages.
        allowed: The settings in which it makes sense.

    Example:
        >>> setting_of("domain", what="split")
        DomainSetting(boundaries=True, kind='domain')
        >>> setting_of("class", what="domains", allowed=("task", "domain"))
        Traceback (most recent call last):
        engram.core.errors.InputError: domains makes no sense in the class setting: choose task or domain
    """
    name = setting if isinstance(setting, str) else setting.kind
    if name not in SETTING_NAMES:
        raise unknown_name("setting", name, SETTING_NAMES)
    if name not in allowed:
        raise InputError(f"{what} makes no sense in the {name} setting: choose {' or '.join(allowed)}")
    if not isinstance(setting, str):
        return setting
    usual: dict[SettingName, Setting] = {
        "task": TaskSetting(),
        "domain": DomainSetting(),
        "class": ClassSetting(),
    }
    return usual[name]
