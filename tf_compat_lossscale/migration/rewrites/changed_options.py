# SPDX-License-Identifier: Apache-2.0
"""A change of the options that `Dataset.options()` returns.

TensorFlow 1 made these options anew at each call, so that programs changed them
and passed them to `with_options`. Since TensorFlow 2.5 such a change is an
error. `with_options` merges options: those that the program sets are enough.
`tf-lossscale run` allows the change.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules

_NAMES = ("tensorflow", "tensorflow.compat.v1")


@rules.rule(
  "LS403",
  "dataset-options",
  __doc__,
  (
    """\
import tensorflow.compat.v1 as tf
import tf_compat_lossscale as tfl
tf.disable_v2_behavior()

scale = tfl.FixedLossScale(128.0)
dataset = tf.data.Dataset.range(8)
options = dataset.options()
options.experimental_deterministic = False
dataset = dataset.with_options(options)
""",
    """\
import tensorflow.compat.v1 as tf
import tf_compat_lossscale as tfl
tf.disable_v2_behavior()

scale = tfl.FixedLossScale(128.0)
dataset = tf.data.Dataset.range(8)
options = tf.data.Options()
options.experimental_deterministic = False
dataset = dataset.with_options(options)
""",
  ),
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the calls of `options()` whose result the program changes."""
  if ".options()" not in file.document.text:
    return
  tensorflow = _find_tensorflow_name(file)
  changed = set(_list_changed(file))
  for node in file.source.list_nodes(ast.Assign):
    if (
      tensorflow
      and _is_call_of_options(node.value)
      and any(isinstance(t, ast.Name) and t.id in changed for t in node.targets)
    ):
      new = f"{tensorflow}.data.Options()"
      yield file.replace("LS403", node.value, new)


def _list_changed(file: files.File) -> Iterator[str]:
  """Yields the names of objects whose experimental options the file sets."""
  for node in file.source.list_nodes(ast.Assign):
    for target in node.targets:
      options = False
      while isinstance(target, ast.Attribute):
        options |= target.attr.startswith("experimental_")
        target = target.value
      if options and isinstance(target, ast.Name):
        yield target.id


def _is_call_of_options(node: ast.expr) -> bool:
  """Returns whether an expression is `dataset.options()`."""
  return (
    isinstance(node, ast.Call)
    and isinstance(node.func, ast.Attribute)
    and node.func.attr == "options"
    and not node.args
    and not node.keywords
  )


def _find_tensorflow_name(file: files.File) -> str | None:
  """Returns the name to which an import binds TensorFlow, or None."""
  for use in file.source.uses:
    if use.form in ("import", "from") and isinstance(use.node, ast.alias):
      name = use.node.asname or use.node.name
      if use.name in _NAMES and "." not in name:
        return name
  return None
