# SPDX-License-Identifier: Apache-2.0
"""Notes of what a program does with a loss scale: whether it scales a loss.

The notes are for `bypass`. They lie in an attribute of a loss scale, of a
manager of `tf.contrib`, or of an optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
from typing import Any

from tf_compat_lossscale._core.tf import graphs

_KEY = "_loss_scale_uses"  # The attribute.


class _State:
  """What is known of a loss scale in one graph, or outside of graphs.

  Attributes:
    is_used: Whether something scaled a loss by it.
  """

  is_used = False


class Uses:
  """The uses of one loss scale or optimizer by the program.

  Attributes:
    is_read: Whether the program read the loss scale.
    is_judged: Whether the first eager step is over.
    is_bypassed: Whether a step bypassed the loss scale.
  """

  def __init__(self) -> None:
    self.is_read = False
    self.is_judged = False
    self.is_bypassed = False
    self._eager_state = _State()

  def find_state(self) -> _State:
    """Returns the state in the current graph of TensorFlow 1, or outside."""
    graph = graphs.find_graph()
    if graph is None:
      return self._eager_state
    return graphs.keep_on_graph(graph, self, _State)

  def __copy__(self) -> Uses:
    return self

  def __deepcopy__(self, memo: dict[int, Any]) -> Uses:
    return self  # A copy may apply what the original computed.

  def __reduce__(self) -> tuple[Any, ...]:
    return Uses, ()


def find(owner: Any) -> Uses | None:
  """Returns the uses of a loss scale or optimizer, if it can have any."""
  attributes = getattr(owner, "__dict__", None)
  if attributes is None:
    return None
  found: Uses = attributes.setdefault(_KEY, Uses())
  return found


def note_read(loss_scale: Any) -> None:
  """Takes note that the program reads a loss scale."""
  uses = find(loss_scale)
  if uses is not None:
    uses.is_read = True


@contextlib.contextmanager
def ignore_reads(loss_scale: Any) -> Iterator[None]:
  """Forgets reads of a loss scale that are not the program's."""
  uses = find(loss_scale)
  before = uses is not None and uses.is_read
  try:
    yield
  finally:
    if uses is not None:
      uses.is_read = before


def note_use(*owners: Any) -> None:
  """Takes note that a loss is scaled.

  Args:
    *owners: The loss scale, and the optimizer that the program sees.
  """
  for owner in owners:
    uses = find(owner)
    if uses is not None:
      uses.find_state().is_used = True


def is_bypassed(loss_scale: Any) -> bool:
  """Returns whether a step bypassed a loss scale, as `bypass` found."""
  uses = find(loss_scale)
  return uses is not None and uses.is_bypassed


def find_owner(loss_scale: Any) -> Any:
  """Returns the object that has the notes and the agreement of a loss scale.

  That is the loss scale itself, or the manager of `tf.contrib` in it.
  """
  return getattr(loss_scale, "manager", loss_scale)
