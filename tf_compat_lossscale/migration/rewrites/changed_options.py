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
from tf_compat_lossscale.programs import sources


@rules.rule(
  "LS403",
  "dataset-options",
  __doc__,
  """\
 import tensorflow.compat.v1 as tf
 import tf_compat_lossscale as tfl
 tf.disable_v2_behavior()

 dataset = tf.data.Dataset.range(8)
-options = dataset.options()
+options = tf.data.Options()
 options.experimental_deterministic = False
 dataset = dataset.with_options(options)
""",
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the calls of `options()` whose result the program changes."""
  if ".options()" not in file.document.text:
    return
  bound = map(files.find_bound_name, file.list_imports())
  tensorflow = next((x for x in bound if x and "." not in x), None)
  assignments = file.source.list_nodes(ast.Assign)
  targets = [target for node in assignments for target in node.targets]
  names = [sources.find_dotted_name(target) or "" for target in targets]
  # `x` of `x.experimental_a` and `x.experimental_a.b`.
  changed = {x.partition(".")[0] for x in names if ".experimental_" in x}
  for node in assignments:
    own = {t.id for t in node.targets if isinstance(t, ast.Name)}
    if tensorflow and _is_call_of_options(node.value) and own & changed:
      yield file.replace(node.value, f"{tensorflow}.data.Options()")


def _is_call_of_options(node: ast.expr) -> bool:
  return (
    isinstance(node, ast.Call)
    and getattr(node.func, "attr", None) == "options"
    and not (node.args or node.keywords)
  )
