# SPDX-License-Identifier: Apache-2.0
"""The names of `tf.contrib` in the table: module, such as "layers" -> names."""

from tf_compat_lossscale.programs import tables

_START = f"{tables.CONTRIB}."

NAMES = {
  module.removeprefix(_START): names
  for module, names in tables.TABLE.names.items()
  if module.startswith(_START)
}
