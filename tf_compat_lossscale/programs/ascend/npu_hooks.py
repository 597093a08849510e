# SPDX-License-Identifier: Apache-2.0
"""Hooks and callbacks of Ascend's that have nothing to do in one process."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from tf_compat_lossscale.programs.ascend import npu_world


class NpuEmptyHook(tf.train.SessionRunHook):
  """A hook that does nothing."""

  def __init__(self, *args: Any, **kwargs: Any) -> None:
    """Takes any arguments."""
    del args, kwargs


class NPUBroadcastGlobalVariablesHook(NpuEmptyHook):
  """A hook that gives all processes the variables of one: there is one."""

  def __init__(self, *args: Any, **kwargs: Any) -> None:
    """Takes any arguments.

    Raises:
      RuntimeError: There should be several processes.
    """
    npu_world.check()
    super().__init__(*args, **kwargs)


def npu_hooks_append(hooks_list: Any = ()) -> list[Any]:
  """Returns the hooks, if they are a list, or a new list."""
  npu_world.check()
  return hooks_list if isinstance(hooks_list, list) else []


def npu_callbacks_append(callbacks_list: Any = ()) -> list[Any]:
  """Returns the Keras callbacks, if they are a list, or a new list."""
  return npu_hooks_append(callbacks_list)


def make_callback(root_rank: int = 0) -> Any:
  """Returns a Keras callback that does nothing: there is one process.

  Raises:
    RuntimeError: There should be several processes.
  """
  del root_rank
  npu_world.check()
  return tf.keras.callbacks.Callback()
