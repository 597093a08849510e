# SPDX-License-Identifier: Apache-2.0
"""What the files of a call tell of one of them: the facts that rules go by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

# The first name that needs a package, its place, the command that installs the
# package, and a note.
Package: TypeAlias = tuple[str, Any, str, str]


class Meaning(NamedTuple):
  """The TensorFlow that a file means.

  Attributes:
    tensorflow: 1 or 2; None if the file does not use TensorFlow.
    reason: The name that told, with its place; "" if the other files told.
    both: Names of both, if the file has such: it stays as it is.
    stays_eager: Whether it uses `tensorflow.compat.v1`, and nothing says that
      TensorFlow 2's behavior was off.
  """

  tensorflow: int | None
  reason: str = ""
  both: str = ""
  stays_eager: bool = False


class Needs(NamedTuple):
  """What a program needs at its start, and does not do.

  Attributes:
    disables: To turn TensorFlow 2's behavior off.
    keras_2: To choose Keras 2.
    restored: The missing names for which it must call `tfl.install()`.
    optimizers: To put Keras's legacy optimizers back.
    switch: A place that turns NVIDIA's variables on; "" if there is none.
    uses_keras_2: Whether it needs Keras 2, chosen or not.
  """

  disables: bool = False
  keras_2: bool = False
  restored: tuple[str, ...] = ()
  optimizers: bool = False
  switch: str = ""
  uses_keras_2: bool = False

  @property
  def install(self) -> str:
    """The call of `install()` that puts the names back."""
    return "install({})".format('keras_optimizers="legacy"' * self.optimizers)


class Vote(NamedTuple):
  """What a file tells of its TensorFlow by itself.

  Attributes:
    meaning: The TensorFlow that it means.
    counts_as: 1, 2 or None: what it counts as, if other files follow.
    guarded: A name behind a question that TensorFlow 2 alone has, or "".
  """

  meaning: Meaning
  counts_as: int | None
  guarded: str


class Context(NamedTuple):
  """What the files of a call tell of one of them.

  Attributes:
    decision: The TensorFlow that the file means.
    release: The TensorFlow (major, minor) that it will run on.
    own_modules: The modules of the call that it imports, as written.
    is_imported: Whether another file imports it.
    needs: What the program needs that starts with it; None if none does.
    elsewhere: What all files need, if none of them starts a program and this is
      the first one that uses TensorFlow.
    starts: The files that start programs with it -> what these need.
    restored: The names for which a program of the call must call `install()`.
    packages: The packages that are missing, and that it needs first.
  """

  decision: Meaning
  release: tuple[int, int] | None
  own_modules: frozenset[str]
  is_imported: bool
  needs: Needs | None = None
  elsewhere: Needs | None = None
  starts: Mapping[str, Needs] = {}
  restored: frozenset[str] = frozenset()
  packages: tuple[Package, ...] = ()
