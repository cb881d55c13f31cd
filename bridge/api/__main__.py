"""`python -m overspan.bridge.api`: the daemon."""

from __future__ import annotations

import sys

from overspan.bridge.api.daemon import main

sys.exit(main())
