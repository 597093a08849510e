# SPDX-License-Identifier: Apache-2.0
"""Watches the loss scale of Keras: which steps were skipped, and why."""

from __future__ import annotations

import itertools
import math
import os
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import _step_log
from tf_compat_lossscale._core import which_keras

try:  # A callback of Keras 2 works in Keras 3, too.
  from tf_compat_lossscale.keras._keras2 import keras
except ImportError:
  keras = which_keras.import_keras_3()


class LossScaleCallback(keras.callbacks.Callback):
  """Watches the loss scale, and says which gradients make a step be skipped.

  In `fit`, the callback logs the lines and writes the four scalars that
  `monitoring.LossScaleHook` does in sessions. A loop of your own calls
  `after_step` before the first step and after each, and `close` at last.

  Steps are attempted steps, counted from `iterations`. With several steps per
  execution, a line is about all steps of an execution. Of optimizers of Keras's
  own, 2 and 3, it tells how many were skipped, at least, and no names.
  """

  def __init__(
    self,
    output_dir: str | os.PathLike[str] | None = None,
    every_n_steps: int = 100,
    on_stuck: _step_log.OnStuck = "warn",
    patience: int = 200,
  ) -> None:
    """Creates a callback; arguments and errors are those of `LossScaleHook`."""
    super().__init__()
    self._supports_tf_logs = True  # Or Keras would fetch the logs each step.
    self._log = _step_log.StepLog(output_dir, every_n_steps, on_stuck, patience)
    self._every = every_n_steps
    self._watched: Any = None  # An `_Own` or an `_OfKeras`.

  def on_train_begin(self, logs: Any = None) -> None:
    self._start(self.model.optimizer)
    self._batches = 0

  def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
    before, self._batches = self._batches, batch + 1
    # In each epoch, batches are counted anew.
    if self._look(batch + 1 - (before if before <= batch else 0)):
      self.model.stop_training = True

  def after_step(self, optimizer: Any) -> bool:
    """Takes note of a step; returns whether the loop is to stop."""
    if self._watched is None or self._watched.optimizer is not optimizer:
      self._start(optimizer)
    return self._look(1)

  def close(self, logs: Any = None) -> None:
    """Writes the last step and closes the file."""
    if self._watched is not None:
      self._due = 0
      self._look(0)
    self._log.close()
    self._watched = None

  on_train_end = close

  def _start(self, optimizer: Any) -> None:
    if not tf.executing_eagerly():
      raise RuntimeError(
        "LossScaleCallback was called in a graph: call after_step outside of "
        "tf.function; in a session, use monitoring.LossScaleHook."
      )
    is_own = hasattr(optimizer, "skip_notes")
    if not is_own and not hasattr(optimizer, "dynamic_growth_steps"):
      raise ValueError(
        f"LossScaleCallback: {optimizer!r} has no loss scale. Wrap it in "
        "tf_compat_lossscale.keras.LossScaleOptimizer or in that of Keras."
      )
    self.close()
    self._watched = _Own(optimizer) if is_own else _OfKeras(optimizer)
    self._peeked, self._due = self._watched.peek(), 0
    self._seen = seen = self._watched.read()
    self._log.open(seen.steps, seen.scale, seen.good_steps)

  def _look(self, batches: int) -> bool:
    """Logs what the last batches did; returns whether to stop."""
    before, peeked = self._peeked, self._watched.peek()
    self._due, self._peeked = self._due - batches, peeked
    if self._due > 0 and peeked == before:
      return False
    before, now = self._seen, self._watched.read()
    steps, skipped = now.steps - before.steps, now.skipped - before.skipped
    if steps <= 0:  # A micro-batch.
      return False
    self._seen, self._due = now, self._every - now.steps % self._every
    if steps > batches:  # In the batches before, nothing happened.
      self._log.add(before._replace(skipped=0, steps=steps - batches))
      steps = batches
    return self._log.add(now._replace(skipped=skipped, steps=steps))


class _Own:
  """Reads an optimizer of this package, by its notes."""

  def __init__(self, optimizer: Any) -> None:
    self.optimizer, self._notes = optimizer, optimizer.skip_notes
    self._counts: dict[tuple[str, ...], int] = {}
    self._culprits: tuple[str, ...] = ()

  def peek(self) -> list[float]:
    """Returns what changes if the scale does or if a step is skipped."""
    notes = self._notes
    value = notes.scale() if notes.value is None else _read(notes.value)
    vectors = [*notes.vectors.values()]
    return [float(value), *(_read(vector).item(0) for vector in vectors)]

  def read(self) -> _step_log.Outcome:
    """Returns the state, the culprits of the last skip, and all steps."""
    notes, counts = self._notes, self._counts
    for names, vector in [*notes.vectors.items()]:
      count, *flags = _read(vector).tolist()
      if count != counts.get(names, 0):
        counts[names] = count
        self._culprits = tuple(dict.fromkeys(itertools.compress(names, flags)))
    steps, skipped = int(_read(self.optimizer.iterations)), sum(counts.values())
    if notes.rule is not None and notes.rule.children:
      steps += skipped  # `iterations` does not count them.
    scale, good = notes.scale(), _read(getattr(notes.scale, "good_steps", None))
    state = float(scale), good, self._culprits, steps
    return _step_log.Outcome(skipped, *state)


class _OfKeras:
  """Reads an optimizer of Keras's own, by what is public."""

  peek = staticmethod(object)  # No two are equal: `read` looks.

  def __init__(self, optimizer: Any) -> None:
    self.optimizer, self._skipped, self._before = optimizer, 0, (0.0, 0)

  def read(self) -> _step_log.Outcome:
    """Returns the state, and all steps; those skipped since the first call."""
    optimizer, (before, steps_before) = self.optimizer, self._before
    steps, good = int(_read(optimizer.iterations)), None
    is_keras_2 = hasattr(optimizer, "dynamic_counter")
    if is_keras_2:
      scale, good = optimizer.loss_scale, _read(optimizer.dynamic_counter)
    elif optimizer.built:
      scale, good = map(
        _read, (optimizer.dynamic_scale, optimizer.step_counter)
      )
    else:
      scale = optimizer.initial_scale
    self._before = scale, steps = float(scale), steps
    if scale < before:
      self._skipped += math.ceil(math.log2(before / scale))
    elif is_keras_2 and scale == before <= 1 and good == 0:
      self._skipped += steps > steps_before  # The floor of Keras 2.
    if not is_keras_2:
      steps += self._skipped  # It counts the applied steps alone.
    return _step_log.Outcome(self._skipped, scale, good, None, steps)


def _read(variable: Any) -> Any:
  """Returns a variable's value, or None, in a fourth of the time of `numpy`."""
  if variable is None:
    return None
  one = getattr(variable, "values", [variable])[0]  # Of replicas.
  return tf.raw_ops.ReadVariableOp(resource=one.handle, dtype=one.dtype).numpy()
