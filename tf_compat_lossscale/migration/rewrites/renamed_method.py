# SPDX-License-Identifier: Apache-2.0
"""A method that TensorFlow 2.0 to 2.5 had, and has no more.

`Strategy.experimental_run_v2` is `Strategy.run`. `Sequential.predict_proba` was
`predict`; the edit is offered, because a model of another library may have the
method. The others have no successor of one name: the finding says what to write
instead. `tf-lossscale run` and `tfl.install()` put the methods back.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules

_RENAMED = {"experimental_run_v2": "run", "predict_proba": "predict"}
_SURE = ("experimental_run_v2",)  # No other library has it.
_BY_HAND = {
  "experimental_make_numpy_dataset": (
    "tf.data.Dataset.from_tensor_slices, with experimental_distribute_dataset"
  ),
  "multi_gpu_model": "tf.distribute.MirroredStrategy",
  "predict_classes": "numpy.argmax(model.predict(x), axis=-1)",
  "should_cast_variables": "policy.variable_dtype != policy.compute_dtype",
}


@rules.rule(
  "LS304",
  "renamed-method",
  __doc__,
  """\
 import tensorflow as tf
 import tf_compat_lossscale as tfl

 strategy = tf.distribute.MirroredStrategy()

 @tf.function
 def train(batch):
-  return strategy.experimental_run_v2(step, args=(batch,))
+  return strategy.run(step, args=(batch,))
""",
  """\
 import tensorflow as tf
 import tf_compat_lossscale as tfl

 def evaluate(model, x):
   return model.predict_proba(x), model.predict_classes(x)
""",
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the uses of methods that are gone."""
  if not file.imports_tensorflow:
    return
  found: list[ast.AST] = [*file.source.unknown]
  found += [use.node for use in file.source.uses if use.form == "expression"]
  for node in found:
    name = getattr(node, "attr", "")
    message, new = _BY_HAND.get(name), _RENAMED.get(name)
    if not (message or new):
      continue
    assert isinstance(node, ast.Attribute)
    if not file.is_at(node):
      continue
    state, note, changes = findings.BY_HAND, "", list[documents.Edit]()
    if new:
      end = file.find_span(node)[1]
      changes = [documents.Edit(end - len(name), end, new)]
      state, message = findings.MIGRATE, f".{new}"
      if name not in _SURE:
        state, note = findings.OFFERED, "if it is a model of Keras"
    yield file.make(node, f".{name}", message or "", state, note, changes)
