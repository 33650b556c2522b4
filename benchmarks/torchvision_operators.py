"""Lets torchvision be imported where its compiled part cannot be loaded, as without CUDA.

`benchmarks.avalanche_env` copies this file into the environment that it makes, where it is imported at start.
The detection operators of torchvision have no schemas if its compiled part is missing, and its import fails.
Avalanche imports it, but does not call them.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path


class Operators:
    """A finder that finds nothing: it defines the operators when torchvision is about to be imported."""

    kept: object = None

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            self.define()
        return None

    def define(self) -> None:
        import torch

        spec = PathFinder.find_spec("torchvision")
        folder = Path(spec.origin).parent if spec is not None and spec.origin else Path()
        try:
            for compiled in folder.glob("_C.*"):
                torch.ops.load_library(compiled)
        except OSError:
            schemas = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                schemas.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            # The definitions last as long as the object.
            Operators.kept = schemas


sys.meta_path.insert(0, Operators())
