# SPDX-License-Identifier: Apache-2.0
"""The state of the graph rewrite (grappler's auto mixed precision).

TensorFlow keeps this state in a private module of plain flags, and `Session`
reads it there. `tf.__internal__` has names for a part of the module alone. In
a release without the module, this module cannot be imported, and neither can
`graph_rewrite`; loss scales and their optimizers work all the same.
"""

from __future__ import annotations

import functools
from typing import Any

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf
from tensorflow.python.client import session as _session
from tensorflow.python.eager import context as _context
from tensorflow.python.training.experimental import (
  mixed_precision_global_state as _state,
)

from tf_compat_lossscale._core import patching

_DEFAULT, ON, OFF = 0, 1, 2  # The toggles of a RewriterConfig.


def is_rewrite_enabled() -> bool:
  """Returns whether sessions created now apply auto mixed precision.

  `tf.__internal__.train.is_mixed_precision_graph_rewrite_enabled` is the same
  getter. It is read here beside its setter, which has no such name.
  """
  return bool(_state.is_mixed_precision_graph_rewrite_enabled())


def set_rewrite_enabled(enabled: bool) -> None:
  """Sets the flag that `is_rewrite_enabled` returns.

  A public setter beside the getter in `tf.__internal__.train` would replace
  this function.
  """
  _state.set_mixed_precision_graph_rewrite_enabled(enabled)


def has_plain_session() -> bool:
  """Returns whether a session was created while the rewrite was off.

  `Session` notes that in the private module. A public reader would replace
  this function.
  """
  return bool(_state.non_mixed_precision_session_created())


def is_mixed_policy_set() -> bool:
  """Returns whether the global policy of Keras 2 is a mixed one.

  Keras 2 notes that through `tf.__internal__.train`, which has the setter
  alone. A getter there would replace this function.
  """
  return bool(_state.is_using_mixed_precision_policy())


def convert_on_cpu(log: patching.UndoLog) -> None:
  """Makes the rewrite convert on CPUs, too, from now on.

  `RewriterConfig` has an option for that, which no name of `tf.config` sets:
  such a name would replace this function. A session takes the option from its
  ConfigProto. A function takes it from the eager context's at each call, for
  the call names the options; so it does not matter when it was traced.
  """
  base, context = _session.BaseSession, type(_context.context())
  initialize, get_config = base.__init__, context.config.fget

  @functools.wraps(initialize)
  def __init__(
    self: Any, target: Any = "", graph: Any = None, config: Any = None
  ) -> None:
    initialize(self, target, graph, _add_cpu(config))

  log.set(base, "__init__", __init__)
  log.set(context, "config", property(lambda self: _add_cpu(get_config(self))))


def _add_cpu(config: Any) -> Any:
  """Returns a ConfigProto, or a copy that converts on CPUs, if it converts."""
  if not isinstance(config, tf.compat.v1.ConfigProto):
    return config  # TensorFlow says what is wrong, or takes the context's.
  options = config.graph_options.rewrite_options
  by_flag = is_rewrite_enabled() and options.auto_mixed_precision == _DEFAULT
  if not by_flag and options.auto_mixed_precision != ON:
    return config
  changed = tf.compat.v1.ConfigProto()
  changed.CopyFrom(config)
  changed.graph_options.rewrite_options.auto_mixed_precision_cpu = ON
  return changed


def find_options(session: Any) -> Any:
  """Returns the GraphOptions of a `tf.compat.v1.Session`.

  `Session` keeps its ConfigProto in a private attribute. A public reader would
  replace this function.
  """
  return session._config.graph_options
