"""Methods, one file each. A method is its difference from fine-tuning."""

from collections.abc import Callable
from typing import Any, TypeVar

from engram.core.registry import Registry

M = TypeVar("M", bound=type[Any])

VERBS = ("begin_task", "observe", "end_task", "predictor")
"""What a method does."""

METHODS: Registry[type[Any]] = Registry(
    "method",
    {
        "finetune": "engram.methods.finetune:Finetune",
        "l2": "engram.methods.l2:L2",
        "ewc": "engram.methods.ewc:EWC",
        "online-ewc": "engram.methods.online_ewc:OnlineEWC",
        "si": "engram.methods.si:SI",
        "mas": "engram.methods.mas:MAS",
        "lwf": "engram.methods.lwf:LwF",
        "er": "engram.methods.er:ER",
        "naive-rehearsal": "engram.methods.naive_rehearsal:NaiveRehearsal",
        "naive-rehearsal-c": "engram.methods.naive_rehearsal_c:NaiveRehearsalC",
        "gdumb": "engram.methods.gdumb:GDumb",
        "er-ace": "engram.methods.er_ace:ERACE",
        "der++": "engram.methods.der_pp:DERPP",
        "icarl": "engram.methods.icarl:ICaRL",
        "gem": "engram.methods.gem:GEM",
        "a-gem": "engram.methods.a_gem:AGEM",
        "dgr": "engram.methods.dgr:DGR",
        "rtf": "engram.methods.rtf:RtF",
        "lp-ft": "engram.methods.lp_ft:LPFT",
        "fomaml": "engram.methods.fomaml:FOMAML",
        "imm-mean": "engram.methods.imm_mean:IMMMean",
        "imm-mode": "engram.methods.imm_mode:IMMMode",
        "packnet": "engram.methods.packnet:PackNet",
        "independent": "engram.methods.independent:Independent",
        "multitask": "engram.methods.multitask:Multitask",
        "offline": "engram.methods.offline:Offline",
    },
    group="engram.methods",
    decorator="@engram.method('name')",
    accept="engram.methods.own:accepted",
)


def method(name: str) -> Callable[[M], M]:
    """Give a method of one's own a name, under which every command knows it.

    It is a dataclass below `Learner`, or any dataclass with a field `network` that has the four verbs:
    `begin_task`, `observe`, `end_task`, `predictor`. The latter gets the experiment's `optimizer_spec` and
    `generator` if it has fields of these names, and all its other fields are hyper-parameters. What it does
    not have itself it is given: `needs` (nothing), `family` ("own"), `paper` (none), `state_dict`,
    `load_state_dict` and `kept_bytes`, the last three from what its attributes hold.

    Raises:
        InputError: It cannot be a method; everything that it lacks is named.

    Example:
        >>> from engram.methods.base import Learner
        >>> @method("test-nothing-new")
        ... class NothingNew(Learner):
        ...     "Fine-tuning by another name."
        >>> METHODS["test-nothing-new"].__name__
        'NothingNew'

        One that learns nothing, with the four verbs alone:

        >>> from dataclasses import dataclass
        >>> @method("test-idle")
        ... @dataclass(kw_only=True, eq=False)
        ... class Idle:
        ...     "The initial network."
        ...     network: object
        ...     def begin_task(self, task): ...
        ...     def observe(self, batch): return 0.0
        ...     def end_task(self, batches): ...
        ...     def predictor(self): return self.network
        >>> METHODS["test-idle"].family, METHODS["test-idle"].needs
        ('own', ())
    """

    def register(made: M) -> M:
        from engram.methods.own import accepted

        accepted(name, made)
        METHODS.add_own(name, made)
        return made

    return register
