"""The state of grappler's auto mixed precision, which `Session` reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Not plain `tensorflow`, which may stand for TensorFlow 1 (`tensorflow1.py`).
import tensorflow.compat.v2 as tf
from tensorflow.python.training.experimental import (
  mixed_precision_global_state as _state,
)


def is_rewrite_enabled() -> bool:
  """Whether sessions made now apply auto mixed precision.

  `Session` reads this flag. The getter has a name in `tf.__internal__`, the
  setter has none.
  """
  return _state.is_mixed_precision_graph_rewrite_enabled()


def set_rewrite_enabled(enabled: bool) -> None:
  """Sets the flag that `is_rewrite_enabled` reads."""
  _state.set_mixed_precision_graph_rewrite_enabled(enabled)


def has_plain_session() -> bool:
  """Whether a session was made while the rewrite was off.

  `Session` notes it where only the private state module can read it.
  """
  return _state.non_mixed_precision_session_created()


def is_mixed_policy_set() -> bool:
  """Whether the global Keras policy is a mixed one.

  Keras 2 notes it through `tf.__internal__.train`; the getter has no name
  there.
  """
  return _state.is_using_mixed_precision_policy()


def foreign_wrappers() -> dict[type, tuple[Callable[..., Any], type]]:
  """What others registered with TensorFlow for the graph rewrite.

  Keras 2 registers its optimizers by `register_loss_scale_wrapper` of
  `tf.__internal__.mixed_precision`. There is no public reader of that table.

  Returns:
    Base class of optimizers -> (function that wraps one, class that it gives).
  """
  register = tf.__internal__.mixed_precision.register_loss_scale_wrapper
  table = register.__globals__.get("_REGISTERED_WRAPPER_OPTIMIZER_CLS", {})
  return dict(table)
