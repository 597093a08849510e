# SPDX-License-Identifier: Apache-2.0
"""A name of the loss-scaling API in a string, or of an unknown object.

Programs that work on several releases of TensorFlow look names up:
`getattr(tf.train.experimental, "LossScale", None)`,
`importlib.import_module("tensorflow.contrib.mixed_precision")`. `migrate` looks
them up in this package. A string that merely has the name of a legacy module is
left to you. If the source does not tell whether `x` in
`x.train.experimental.LossScale` is TensorFlow, as with a parameter of a
function, `from mylib import x` or `from tensorflow import *`, the edit is
offered: `migrate --offered` makes it. A module that is passed on as a value,
`f(tf.train.experimental)`, and code in a text, `eval("…")`, are left to you.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import sources

_FORMS = ("getattr", "hasattr", "module", "text", "unknown")
_IMPORTERS = ("import_module", "importlib.import_module")


@rules.rule(
  "LS103",
  "legacy-text",
  __doc__,
  """\
+import tf_compat_lossscale as tfl
 import tensorflow.compat.v1 as tf

-Scale = getattr(tf.train.experimental, "DynamicLossScale", None)
+Scale = getattr(tfl, "DynamicLossScale", None)
""",
  """\
 def make_scale(tf):
   return tf.train.experimental.FixedLossScale(8.0)

 scale = eval("tf.train.experimental.LossScale")
""",
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the legacy names in strings, of unknown objects, and as values."""
  uses = [use for use in file.legacy if use.form in _FORMS]
  imported = {
    node.args[0]
    for node in (file.source.list_nodes(ast.Call) if uses else ())
    if node.args and sources.find_dotted_name(node.func) in _IMPORTERS
  }
  for use in uses:
    state, note, changes = findings.BY_HAND, "", list[documents.Edit]()
    if use.form == "unknown":
      message = file.shorten(use.now)
      note = f"if {use.written.partition('.')[0]} is TensorFlow"
      if file.is_at(use.node):
        state = findings.OFFERED
        changes = [file.make_edit(use.node, message)]
    elif use.form in ("getattr", "hasattr"):
      message, changes = _edit_question(file, use.node, use.now)
    elif use.form == "module" or not legacy_names.find_home(use.name):
      message = f"names of this module are in {use.now} now"
    else:
      message = f"the name is in a string: {use.now}"
      quote = file.document.text[file.find_span(use.node)[0]]
      if use.node in imported and quote in "\"'" and file.is_at(use.node):
        message = use.now
        changes = [
          documents.Edit(*file.find_span(use.node), f"{quote}{message}{quote}")
        ]
    if changes and state == findings.BY_HAND:
      state = findings.MIGRATE
    needs_package = changes and use.form != "text"
    opening = [file.package_import] if needs_package else []
    yield file.make(
      use.node, use.written, message, state, note, changes, opening
    )


def _edit_question(
  file: files.File, call: ast.Call, now: str
) -> tuple[str, list[documents.Edit]]:
  """Returns the message and the edits for `getattr(module, "name")`."""
  package, _, last = now.rpartition(".")
  short = file.shorten(package)
  owner, name = call.args[:2]
  if not package or not (file.is_at(owner) and file.is_at(name)):
    return f"the name is in a string: {now}", []
  changes = [file.make_edit(owner, short)]
  if isinstance(name, ast.Constant) and name.value != last:
    changes.append(documents.Edit(*file.find_span(name), repr(last)))
  return f'{sources.unparse(call.func)}({short}, "{last}")', changes
