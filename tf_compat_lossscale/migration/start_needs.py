# SPDX-License-Identifier: Apache-2.0
"""Tells which files start programs, and which calls a program must make first.

The rules about start files share this.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
import functools
import os
import re

from tf_compat_lossscale.migration import contexts
from tf_compat_lossscale.migration import files as files_lib
from tf_compat_lossscale.programs import launch
from tf_compat_lossscale.programs import sources

_NEVER = ("setup.py", "__init__.py", "conftest.py")
_TEST = re.compile(r"test_.*\.py|.*_test\.py|__main__\.py|.*\.ipynb")
_GRAPH_CALLS = ("disable_v2_behavior", "disable_eager_execution")
_BLOCKS = (ast.For, ast.While, ast.With)
# A fact about a file -> what tells it at the start of a name in the file.
_FACTS = {
  "keras": re.compile(f"{launch.KERAS.pattern}|keras$"),
  # `tensorflow.compat.v1.keras` is empty with Keras 3.
  "keras 2": re.compile(
    r"tensorflow\.compat\.v1\.keras|tf_compat_lossscale\.keras\."
    r"(LossScaleOptimizer|Policy|\w+_policy)\b"
  ),
  "keras 3": re.compile(r".*\.Keras3"),
  "our keras": re.compile(r"tf_compat_lossscale\.keras$"),
  # What `migrate` makes of names for which `run` chooses Keras 2.
  "migrated": re.compile(
    r"tf_compat_lossscale\.(\w*LossScale\w*|\w+_rewrite)\b"
  ),
  "import keras": re.compile(r"keras(\.|$)"),
  "optimizers": re.compile(r"(.*\W)?keras\.optimizers(\.(?!legacy)|$)"),
  "starts": re.compile(r".*app\.run"),
}
_KERAS_LACKS = re.compile(r"tf\.(contrib\.|estimator)")


def find_signs(file: files_lib.File) -> set[str]:
  """Returns what a file tells of what programs need.

  These are keys of `_FACTS`; "asks" (it has a name for which `run` chooses
  Keras 2), "chooses" (it chooses Keras 2 by an environment variable), "legacy"
  (it has legacy names), "graph" (it imports `tensorflow.compat.v1`, and uses
  names of TensorFlow 1 there), "acts" (it does more than to define things), and
  "starts" (it asks for `__main__`, or calls `app.run`).
  """
  facts = set[str]().union(*map(_find_facts, file.names))
  if "our keras" in facts and "keras 3" not in facts:
    facts.add("keras 2")
  if any(map(_KERAS_LACKS.match, file.restorable)):
    facts.add("keras")
  text = file.document.text
  if next(launch.find_signs_of_keras_2(file.source), None) is not None:
    facts.add("asks")
  if "TF_USE_LEGACY_KERAS" in text:
    facts.add("chooses")
  if ".compile(" in text and _compiles(file.source):
    facts.add("optimizers")
  if file.has_legacy:
    facts.add("legacy")
  if file.imports_compat_v1 and file.has_names_of_compat_v1:
    facts.add("graph")
  if file.main_lines:
    facts.add("starts")
  if any(_acts(file, statement) for statement in file.statements):
    facts.add("acts")
  return facts


@functools.lru_cache(1 << 16)
def _find_facts(name: str) -> frozenset[str]:
  return frozenset(x for x, sign in _FACTS.items() if sign.match(name))


def find_needs(
  read: Collection[files_lib.File],
  start: files_lib.File | None,
  nvidia_switch: bool,
) -> contexts.Needs:
  """Returns what a program needs, of these files; `start` starts it, if any."""
  facts = set[str]().union(*(file.signs for file in read))
  done = {
    name
    for file in read
    for name, is_always in file.calls.items()
    if is_always or file is start
  }
  deciding = read if start is None or start.tensorflow is None else [start]
  is_1 = any(file.tensorflow == 1 for file in deciding)
  asks = "asks" in facts or (start is None and "migrated" in facts)
  keras_2 = "keras 2" in facts or ("keras" in facts and (is_1 or asks))
  chosen = "chooses" in facts or "use_keras_2" in done
  lacks = [x for file in read for x in file.restorable if x != "keras"]
  if keras_2 and "import keras" in facts:
    lacks.append("keras")
  # Who ports a program by hand has today's optimizers in mind.
  is_ported = "legacy" not in facts and (
    chosen or (start is not None and start.imports_package)
  )
  switches = ["--nvidia-switch"] if nvidia_switch else []
  switches += [file.switch for file in read if file.switches]
  needs = contexts.Needs(
    disables=_was_graph(read, start, facts) and done.isdisjoint(_GRAPH_CALLS),
    keras_2=keras_2 and not chosen,
    uses_keras_2=keras_2 or chosen,
  )
  if "install" not in done:
    has_old = keras_2 and "optimizers" in facts and not is_ported
    restored = tuple(dict.fromkeys(lacks))
    needs = needs._replace(restored=restored, optimizers=has_old)
  if is_1 and switches and "honor_environment" not in done:
    needs = needs._replace(switch=switches[0])
  return needs


def _was_graph(
  read: Collection[files_lib.File],
  start: files_lib.File | None,
  facts: set[str],
) -> bool:
  """Returns whether a program ran with TensorFlow 2's behavior off."""
  if start is not None and start.tensorflow is not None:
    return start.tensorflow == 1 and not start.context.decision.stays_eager
  was_graph = any(
    not file.context.decision.stays_eager
    or (file.imports_package and file.has_names_of_compat_v1)
    for file in read
    if file.tensorflow == 1
  )
  return was_graph or (start is None and "graph" in facts)


def starts_program(file: files_lib.File, paths: Collection[str]) -> bool:
  """Returns whether a file starts a program.

  It asks for `__main__`, calls `app.run`, or is a notebook or a test; or it is
  a script: no file of the call imports it, it is in no package, and it does
  more than to define things.
  """
  name = os.path.basename(file.path)
  if name in _NEVER:
    return False
  if _TEST.fullmatch(name) or "starts" in file.signs:
    return True
  init = os.path.join(os.path.dirname(file.path), "__init__.py")
  if file.context.is_imported or init in paths:
    return False
  return "acts" in file.signs


def _acts(file: files_lib.File, statement: ast.stmt) -> bool:
  """Returns whether a statement of a module does more than to define things."""
  if isinstance(statement, _BLOCKS):
    return True
  if isinstance(statement, ast.Expr):
    return not isinstance(statement.value, ast.Constant)
  if isinstance(statement, (ast.Assign, ast.AnnAssign)):
    value = statement.value
    function = value.func if isinstance(value, ast.Call) else None
    return files_lib.is_tensorflow(file.source.resolve(function) or "")
  return False


def _compiles(source: sources.SourceFile) -> bool:
  return any(
    getattr(node.func, "attr", None) == "compile"
    and any(word.arg in ("loss", "optimizer") for word in node.keywords)
    for node in source.list_nodes(ast.Call)
  )
