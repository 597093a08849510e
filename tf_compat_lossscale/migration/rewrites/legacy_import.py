# SPDX-License-Identifier: Apache-2.0
"""An import of the loss-scaling API from a place that TensorFlow had for it.

Most of these modules are gone: `tensorflow.contrib` since 2.0,
`tensorflow.keras.mixed_precision.experimental` since 2.9. `migrate` imports
the same names from this package, and binds them as before. Names that
TensorFlow still has are imported from TensorFlow, as they were.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from collections.abc import Sequence
from typing import TypeAlias

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import imports
from tf_compat_lossscale.migration import legacy_uses
from tf_compat_lossscale.migration import rules

_PACKAGE = "tf_compat_lossscale"
_Pair: TypeAlias = tuple[ast.alias, legacy_uses.LegacyUse]


@rules.rule(
  "LS102",
  "legacy-import",
  __doc__,
  """\
-from tensorflow.train.experimental import (
+from tf_compat_lossscale import (
     DynamicLossScale,  # Doubles.
     LossScale as Base,
 )
""",
  """\
-from tensorflow.keras.mixed_precision import experimental as mp
+import tf_compat_lossscale as tfl
+tfl.use_keras_2()  # Before TensorFlow is imported.
+from tf_compat_lossscale import keras as mp

 mp.set_policy("mixed_float16")
""",
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the imports of legacy names and modules."""
  found = {
    id(use.node): use
    for use in file.legacy
    if use.form in ("import", "from", "star")
  }
  if not found:
    return
  for node in file.list_imports():
    if isinstance(node, ast.Import):
      for alias in node.names:
        if id(alias) in found:
          yield _find_in_import(file, alias, found[id(alias)])
    else:
      pairs = [(a, found[id(a)]) for a in node.names if id(a) in found]
      if id(node) in found:
        yield from _find_star(file, node, found[id(node)])
      elif pairs:
        yield from _find_in_import_from(file, node, pairs)


def _find_in_import(
  file: files.File, alias: ast.alias, use: legacy_uses.LegacyUse
) -> findings.Finding:
  # Without `as`, the statement binds `tensorflow` alone.
  target, bound = use.now, alias.asname
  if not bound:
    target, bound = "tensorflow", "tensorflow"
    if file.tensorflow == 1:
      target = "tensorflow.compat.v1"
  edit = imports.make_name_edit(file, alias, target, bound)
  message = f"import {use.now}"
  return file.make(alias, f"import {use.name}", message, edits=[edit])


def _find_star(
  file: files.File, node: ast.ImportFrom, use: legacy_uses.LegacyUse
) -> Iterator[findings.Finding]:
  place = legacy_names.find_place(use.name)
  if place is not None and legacy_names.find_module_home(place):
    line = f"from {use.now} import *"
    changes = [imports.make_module_edit(file, node, use.now)]
  else:  # The module has other names, which stay.
    exported = legacy_names.NAMES_IN.get(place, {}) if place else {}
    wanted = sorted(exported)  # Other modules may take them from this one.
    if {f"{_PACKAGE}.{name}" for name in wanted} <= {*file.source.modules}:
      return
    line = f"from {_PACKAGE} import {', '.join(wanted)}"
    changes = imports.insert_after(file, node, [line])
  yield file.make(node, f"from {use.name} import *", line, edits=changes)


def _find_in_import_from(
  file: files.File, node: ast.ImportFrom, pairs: Sequence[_Pair]
) -> Iterator[findings.Finding]:
  packages = {use.now.rpartition(".")[0] for _, use in pairs}
  package = next(iter(packages))
  if len(packages) == 1 and package and len(pairs) == len(node.names):
    changes = [imports.make_module_edit(file, node, package)]
    for alias, use in pairs:
      last, bound = use.now.rpartition(".")[2], alias.asname or alias.name
      if last != alias.name:
        changes.append(imports.make_name_edit(file, alias, last, bound))
  else:
    moved = [alias for alias, _ in pairs]
    changes = imports.move_names(file, node, moved, _make_imports(pairs))
  for alias, use in pairs:
    package, _, last = use.now.rpartition(".")
    message = f"from {package} import {last}" if package else f"import {last}"
    note = legacy_names.NOTES.get(use.now.partition(".")[2], "")
    yield file.make(alias, alias.name, message, note=note, edits=changes)
    changes = []  # They belong together: the first name has them.


def _make_imports(pairs: Sequence[_Pair]) -> list[str]:
  """Returns imports from this package that bind the names of the old ones."""
  modules: dict[str, list[str]] = {}
  for alias, use in pairs:
    bound = alias.asname or alias.name
    package, _, last = use.now.rpartition(".")
    if package:
      renamed = f" as {bound}" if bound != last else ""
      modules.setdefault(f"from {package} import ", []).append(last + renamed)
    else:
      modules.setdefault(f"import {last} as ", []).append(bound)
  return [start + ", ".join(bound) for start, bound in modules.items()]
