"""Makes the fakes importable by their name: test folders are no packages."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

for name in ("fakes", "schedule_scenes"):
    full = f"tests.unit.controller.{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
