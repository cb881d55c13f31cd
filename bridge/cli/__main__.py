"""`python -m overspan.bridge.cli` is `span`."""

from __future__ import annotations

import sys

from overspan.bridge.cli.program import main

sys.exit(main())
