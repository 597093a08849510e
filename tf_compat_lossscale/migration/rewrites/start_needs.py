# SPDX-License-Identifier: Apache-2.0
"""Finds the calls that a program must make first, by the files that it has.

The rules about start files share this.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from collections.abc import Sequence
import itertools
import os
import re
from typing import NamedTuple

from tf_compat_lossscale.migration import contexts
from tf_compat_lossscale.migration import files as files_lib
from tf_compat_lossscale.programs import choices
from tf_compat_lossscale.programs import missing_names
from tf_compat_lossscale.programs import sources

# In the names of a file, one a line.
_OPTIMIZERS = re.compile(r"\bkeras\.optimizers(\.(?!legacy)|$)", re.MULTILINE)
_STANDALONE = re.compile(r"^keras(\.|$)", re.MULTILINE)
_KERAS = re.compile(f"^{choices.KERAS.pattern}|^keras$", re.MULTILINE)
_KERAS_2 = re.compile(
  r"^tensorflow\.compat\.v1\.keras"  # Keras 3 has nothing there.
  r"|^tf_compat_lossscale\.keras($|\.(LossScaleOptimizer|Policy|\w+_policy)\b)",
  re.MULTILINE,
)
_KERAS_LACKS = re.compile(r"\btf\.(contrib\.|estimator)")


def find_needs(
  files: Sequence[files_lib.File],
  traits: Iterable[Traits],
  start: files_lib.File | None,
  nvidia_switch: bool,
) -> contexts.Needs:
  """Returns what a program needs.

  Args:
    files: The files that may belong to it.
    traits: What they add to its needs.
    start: The file that starts it; None if none of them does.
    nvidia_switch: Whether NVIDIA's variables are on in all programs.
  """
  tensorflow = start.tensorflow if start else None
  if tensorflow is None:
    tensorflow = 1 if any(file.tensorflow == 1 for file in files) else 2
  done = {
    name
    for file in files
    for name, is_always in file.calls.items()
    if is_always or file is start
  }
  whole = Traits.join(traits)
  lacks = list(whole.lacks)
  keras_2 = whole.has_keras_2 or (
    whole.uses_keras and (tensorflow == 1 or whole.means_keras_2)
  )
  if keras_2 and whole.imports_keras:
    lacks.append("keras")
  chosen = whole.chooses or "use_keras_2" in done
  installs = "install" in done
  switch = "--nvidia-switch" if nvidia_switch else whole.switch
  return contexts.Needs(
    tensorflow == 1
    and done.isdisjoint(("disable_v2_behavior", "disable_eager_execution")),
    keras_2 and not chosen,
    () if installs else tuple(dict.fromkeys(lacks)),
    keras_2 and not installs and whole.uses_optimizers,
    "" if "honor_environment" in done else switch,
    keras_2 or chosen,
  )


class Traits(NamedTuple):
  """What a file adds to the needs of its programs.

  Attributes:
    lacks: The missing names that `tfl.install()` puts back.
    has_keras_2: Whether it has names that Keras 2 alone has.
    uses_keras: Whether it uses Keras, or what is built on Keras.
    means_keras_2: Whether it means Keras 2, if it uses Keras.
    chooses: Whether it sets the environment variable that chooses Keras 2.
    uses_optimizers: Whether it uses optimizers of Keras, by class or by name.
    imports_keras: Whether it imports the package `keras`.
    switch: Where it turns NVIDIA's variables on; "" if it does not.
  """

  lacks: tuple[str, ...]
  has_keras_2: bool
  uses_keras: bool
  means_keras_2: bool
  chooses: bool
  uses_optimizers: bool
  imports_keras: bool
  switch: str

  @classmethod
  def join(cls, traits: Iterable[Traits]) -> Traits:
    """Returns what several files add together."""
    columns = list(zip(*traits))
    lacks = tuple(itertools.chain.from_iterable(columns[0]))
    switch = next(filter(None, columns[-1]), "")
    of_2, uses, means, chooses, optimizers, imports = map(any, columns[1:-1])
    return cls(
      *(lacks, of_2, uses, means, chooses, optimizers, imports, switch)
    )


def find_traits(file: files_lib.File) -> Traits:
  """Returns what a file adds to the needs of its programs."""
  names = file.names
  lacks = tuple(
    absence.name
    for _, absence in file.absences
    if absence.state == missing_names.RESTORED
  )
  text, switch = file.document.text, ""
  if file.switches:
    line = file.lines.find_position(file.switches[0][1][0])[0]
    switch = f"{os.path.basename(file.path)}:{line}"
  return Traits(
    lacks,
    bool(_KERAS_2.search(names)),
    bool(_KERAS.search(names) or _KERAS_LACKS.search(" ".join(lacks))),
    next(choices.find_keras_2(file.source), None) is not None,
    "TF_USE_LEGACY_KERAS" in text,
    bool(_OPTIMIZERS.search(names))
    or (".compile(" in text and _compiles(file.source)),
    bool(_STANDALONE.search(names)),
    switch,
  )


def _compiles(source: sources.Source) -> bool:
  """Returns whether a source may call `Model.compile`."""
  return any(
    getattr(node.func, "attr", None) == "compile"
    and any(word.arg in ("loss", "optimizer") for word in node.keywords)
    for node in source.list_nodes(ast.Call)
  )
