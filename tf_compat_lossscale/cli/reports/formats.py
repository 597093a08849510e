# SPDX-License-Identifier: Apache-2.0
"""The table of formats of `tf-lossscale scan`."""

from __future__ import annotations

from collections.abc import Callable

from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.cli.reports import codes
from tf_compat_lossscale.cli.reports import github
from tf_compat_lossscale.cli.reports import json
from tf_compat_lossscale.cli.reports import sarif
from tf_compat_lossscale.cli.reports import text
from tf_compat_lossscale.migration import findings

_Writer = Callable[[findings.Report, terminal.Printer], None]

WRITERS: dict[str, _Writer] = {
  "text": text.write,
  "json": json.write,
  "github": github.write,
  "sarif": sarif.write,
}
STATISTICS_WRITERS: dict[str, _Writer] = {
  "text": codes.write_statistics,
  "json": codes.write_statistics_json,
}
