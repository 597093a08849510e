# SPDX-License-Identifier: Apache-2.0
"""The choices of a flag of absl-py in one text.

TensorFlow's official models define the flag `fp16_implementation` with the
choices `("keras', 'graph_rewrite")`, one text by a mistake, and many programs
copied that. Old releases of absl-py looked for the flag's value in the text;
today's refuse it. `migrate` writes a list. `tf-lossscale run` accepts the text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import old_libraries

_FUNCTION = "DEFINE_enum"


@rules.rule(
  "LS404",
  "flag-choices",
  __doc__,
  """\
 from absl import flags
 import tf_compat_lossscale as tfl

-flags.DEFINE_enum("kind", "keras", enum_values=("keras', 'graph_rewrite"),
+flags.DEFINE_enum("kind", "keras", enum_values=(["keras", "graph_rewrite"]),
                   help="The kind of mixed precision.")
""",
)
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the choices that are one text."""
  if _FUNCTION not in file.document.text:
    return
  for node in file.source.list_nodes(ast.Call):
    names = getattr(node.func, "attr", None), getattr(node.func, "id", None)
    if _FUNCTION not in names:
      continue
    given = node.args[2:3]
    given += [w.value for w in node.keywords if w.arg == "enum_values"]
    for value in given:
      if isinstance(value, ast.Constant) and isinstance(value.value, str):
        choices = old_libraries.split_choices(value.value)
        new = "[" + ", ".join(f'"{each}"' for each in choices) + "]"
        yield file.replace(value, new)
