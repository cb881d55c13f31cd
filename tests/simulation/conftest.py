"""Makes the modules of this folder importable by their names: test folders are no packages."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

for stem in ("clockwork", "machine"):
    name = f"tests.simulation.{stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{stem}.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
