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
from tf_compat_lossscale.migration import edits
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration.rewrites import legacy_uses
from tf_compat_lossscale.programs import sources

_IMPORTERS = ("import_module", "importlib.import_module")


@rules.rule(
  "LS103",
  "legacy-text",
  __doc__,
  (
    """\
import tensorflow.compat.v1 as tf

Scale = getattr(tf.train.experimental, "DynamicLossScale", None)
""",
    """\
import tf_compat_lossscale as tfl
import tensorflow.compat.v1 as tf

Scale = getattr(tfl, "DynamicLossScale", None)
""",
  ),
  (
    """\
import importlib

contrib = importlib.import_module("tensorflow.contrib.mixed_precision")
""",
    """\
import importlib

contrib = importlib.import_module("tf_compat_lossscale.contrib")
""",
  ),
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the legacy names in strings."""
  for use in file.legacy:
    if use.form == "unknown":
      yield _find_unknown(file, use)
    elif use.form in ("getattr", "hasattr"):
      yield _find_getattr(file, use)
    elif use.form in ("text", "module"):
      yield _find_text(file, use)


def _find_text(
  file: files.File, use: legacy_uses.LegacyUse
) -> findings.Finding:
  """Returns the finding for a text, or for a module as a value."""
  span = file.find_span(use.node)
  quote = file.document.text[slice(*span)][:1]
  if use.form == "module" or not legacy_names.find_home(use.name):
    message = f"names of this module are in {use.now} now"
  elif (
    use.node in _find_imported_texts(file)
    and quote in "\"'"
    and file.is_at(use.node)
  ):
    edit = edits.Edit(*span, f"{quote}{use.now}{quote}")
    return file.make("LS103", use.node, use.written, use.now, edits=[edit])
  else:
    message = f"the name is in a string: {use.now}"
  return file.make("LS103", use.node, use.written, message, findings.BY_HAND)


def _find_unknown(
  file: files.File, use: legacy_uses.LegacyUse
) -> findings.Finding:
  """Returns the finding for `x.train.experimental.LossScale`."""
  short = file.shorten(use.now)
  edit = edits.Edit(*file.find_span(use.node), short)
  is_at = file.is_at(use.node)
  return file.make(
    "LS103",
    use.node,
    use.written,
    short,
    findings.OFFERED if is_at else findings.BY_HAND,
    f"if {use.written.partition('.')[0]} is TensorFlow",
    edits=[edit] if is_at else [],
    opening=[file.package_import] if is_at else [],
  )


def _find_getattr(
  file: files.File, use: legacy_uses.LegacyUse
) -> findings.Finding:
  """Returns the finding for `getattr(module, "name")`."""
  call: ast.Call = use.node
  package, _, last = use.now.rpartition(".")
  short = file.shorten(package)
  owner, name = call.args[:2]
  if not package or not (file.is_at(owner) and file.is_at(name)):
    message = f"the name is in a string: {use.now}"
    return file.make("LS103", call, use.written, message, findings.BY_HAND)
  changes = [edits.Edit(*file.find_span(owner), short)]
  if isinstance(name, ast.Constant) and name.value != last:
    changes.append(edits.Edit(*file.find_span(name), repr(last)))
  return file.make(
    "LS103",
    call,
    use.written,
    f'{sources.unparse(call.func)}({short}, "{last}")',
    edits=changes,
    opening=[file.package_import],
  )


def _find_imported_texts(file: files.File) -> list[ast.expr]:
  """Returns the strings that are given to `import_module`."""
  return [
    node.args[0]
    for node in file.source.list_nodes(ast.Call)
    if node.args and sources.find_dotted_name(node.func) in _IMPORTERS
  ]
