# SPDX-License-Identifier: Apache-2.0
"""Notes of what a program does with loss scales: whether it scales a loss.

The notes are for `bypass`. What is read and used counts for all loss scales:
the gradients of one optimizer may be applied by another.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import threading
from typing import Any

from tf_compat_lossscale._core.tf import graphs

_KEY = "_loss_scale_uses"  # The attribute of a loss scale.
_THREAD = threading.local()  # Whether reads are not the program's.


class State:
  """What is known of the loss scales in one graph, or in the process.

  Attributes:
    is_used: Whether something scaled a loss.
    is_read: Whether the program read a loss scale; only for the process.
  """

  is_used = False
  is_read = False


process = State()


class Uses:
  """What is known of one loss scale.

  Attributes:
    is_judged: Whether the first eager step is over.
    is_bypassed: Whether a step bypassed the loss scale.
  """

  def __init__(self) -> None:
    self.is_judged = False
    self.is_bypassed = False

  def __copy__(self) -> Uses:
    return self

  def __deepcopy__(self, memo: dict[int, Any]) -> Uses:
    return self  # A copy warns no second time.

  def __reduce__(self) -> tuple[Any, ...]:
    return Uses, ()


def find(owner: Any) -> Uses | None:
  """Returns what is known of a loss scale, if it can have notes."""
  attributes = getattr(owner, "__dict__", None)
  if attributes is None:
    return None
  found: Uses = attributes.setdefault(_KEY, Uses())
  return found


def note_read() -> None:
  """Takes note that the program reads a loss scale, or its variables."""
  if not getattr(_THREAD, "ignores", False):
    process.is_read = True


@contextlib.contextmanager
def ignore_reads() -> Iterator[None]:
  """Ignores reads in this thread, which are not the program's."""
  before = getattr(_THREAD, "ignores", False)
  _THREAD.ignores = True
  try:
    yield
  finally:
    _THREAD.ignores = before


def note_use() -> None:
  """Takes note that a loss is scaled."""
  _find_state().is_used = process.is_used = True


def is_used() -> bool:
  """Returns whether a loss was scaled, in this graph or in the process.

  The graph is one of TensorFlow 1. Elsewhere, gradients may come from anywhere.
  """
  return _find_state().is_used


def _find_state() -> State:
  graph = graphs.find_graph()
  if graph is None:
    return process
  return graphs.keep_on_graph(graph, State, State)


def is_bypassed(loss_scale: Any) -> bool:
  """Returns whether a step bypassed a loss scale, as `bypass` found."""
  uses = find(loss_scale)
  return uses is not None and uses.is_bypassed


def find_owner(loss_scale: Any) -> Any:
  """Returns the object that has the notes and the agreement of a loss scale.

  That is the loss scale itself, or the manager of `tf.contrib` in it.
  """
  return getattr(loss_scale, "manager", loss_scale)
