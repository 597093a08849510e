# SPDX-License-Identifier: Apache-2.0
"""Variables and loss scales of an object graph, by path and by name."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses

from tf_compat_lossscale.checkpoint.files.entries import TensorSpec


@dataclasses.dataclass(frozen=True)
class ObjectVariable:
  """A variable of an object graph.

  Attributes:
    number: The number of its node.
    path: Its path in the objects.
    name: Its name in a checkpoint of a Saver.
    key: Its key in the checkpoint.
    tensor: Its dtype and shape.
  """

  number: int
  path: str
  name: str
  key: str
  tensor: TensorSpec

  def __str__(self) -> str:
    return f"{self.path} ({self.name})"


@dataclasses.dataclass(frozen=True)
class ObjectScale:
  """A loss scale of an object graph.

  Attributes:
    api: COMPAT or CONTRIB.
    variables: The variables, in the order of `names.SCALE_TENSORS[api]`.
  """

  api: str
  variables: tuple[ObjectVariable, ...]

  @property
  def names(self) -> tuple[str, ...]:
    """The names of the variables in a checkpoint of a Saver."""
    return tuple(variable.name for variable in self.variables)

  def __str__(self) -> str:
    path = self.variables[0].path.rpartition("/")[0]
    return f"{path} ({', '.join(self.names)})"


def describe_unclear(
  what: str,
  here: Iterable[ObjectVariable | ObjectScale],
  there: Iterable[str],
) -> str:
  """Returns a list of variables and of their candidates, for a message."""
  ours = ", ".join(sorted(map(str, here)))
  return f"the {what} {ours} here and {', '.join(sorted(there))} there"
