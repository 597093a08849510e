# SPDX-License-Identifier: Apache-2.0
"""The names of `tf.contrib` in the table: module, such as "layers" -> names."""

import json

import helpers

from tf_compat_lossscale.programs import tables

_START = f"{tables.CONTRIB}."

NAMES = {
  module.removeprefix(_START): names
  for module, names in tables.TABLE.names.items()
  if module.startswith(_START)
}

# What `contrib_signatures.py` printed on TensorFlow 1.15.5.
RECORDED = json.loads(
  (helpers.ROOT / "tests/programs/legacy/contrib_signatures.json").read_text(
    "utf-8"
  )
)


def list_names():
  """Returns module -> names: those of the table, and those that 1.15.5 had."""
  found = {module: set(names) for module, names in NAMES.items()}
  for path in RECORDED["signatures"]:
    module, _, name = path.partition(".")
    found.setdefault(module, set()).add(name)
  return {module: sorted(names) for module, names in found.items()}
