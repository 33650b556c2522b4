"""Methods, one file each. A method is its difference from fine-tuning."""

from typing import Any

from engram.core.registry import Registry

METHODS: Registry[type[Any]] = Registry(
    "method",
    {
        "finetune": "engram.methods.finetune:Finetune",
        "er": "engram.methods.er:ER",
        "ewc": "engram.methods.ewc:EWC",
        "lwf": "engram.methods.lwf:LwF",
        "gem": "engram.methods.gem:GEM",
    },
)
