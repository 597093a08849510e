# SPDX-License-Identifier: Apache-2.0
"""A monitor that watches the loss scale of eager code and of `tf.function`."""

from __future__ import annotations

import os
import threading
from typing import Any
from typing import NamedTuple

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale.monitoring import keeping
from tf_compat_lossscale.monitoring import optimizer_steps
from tf_compat_lossscale.monitoring import recorder
from tf_compat_lossscale.monitoring import stuck
from tf_compat_lossscale.monitoring import watched
from tf_compat_lossscale.monitoring.steps import Step

# After so many calls of `step`, an optimizer that took no step is suspect.
_MANY_CALLS = 100


class _Watched(NamedTuple):
  """An optimizer that may take the steps.

  Attributes:
    optimizer: The optimizer, which has a loss scale.
    loss_scale: Its loss scale.
    steps: The observer of its steps.
    attempted: How many steps it had taken before the monitor was made.
    skipped: Of these, how many were skipped.
  """

  optimizer: Any
  loss_scale: Any
  steps: optimizer_steps.OptimizerSteps
  attempted: int
  skipped: int


class Monitor:
  """Watches the loss scale, and says which gradients make it fall.

  ```
  with Monitor(opt, output_dir="logs/run") as monitor:
    for batch in dataset:
      train(batch)  # Calls opt.minimize, eagerly or in a tf.function.
      monitor.step()
      if monitor.should_stop:
        break
  ```

  Make the monitor before the first call of the `tf.function` that takes the
  steps: a function that was traced before tells no gradients. `step` then
  counts one step for each call.

  A monitor logs and writes what `LossScaleHook` logs and writes: see there. A
  monitor changes no result, and nothing of it is in checkpoints. For training
  in a session, use `LossScaleHook`.

  Attributes:
    should_stop: Whether the run was found stuck, with `on_stuck="stop"`.
  """

  def __init__(
    self,
    optimizer: Any,
    output_dir: str | os.PathLike[str] | None = None,
    every_n_steps: int = 100,
    blame: bool = True,
    on_stuck: stuck.Reaction = "warn",
    patience: int = 200,
    global_step: Any = None,
  ) -> None:
    """Creates a monitor; no file is written yet.

    The arguments that are not listed here are those of `LossScaleHook`.

    Args:
      optimizer: A `MixedPrecisionLossScaleOptimizer`, a
        `contrib.LossScaleOptimizer`, a `keras.LossScaleOptimizer` or an
        optimizer that wraps one of these.
      every_n_steps: How often a line is written though nothing has changed, and
        how often zeros and the largest magnitude are measured, to see
        underflow; in attempted steps.
      on_stuck: What `step` does if the run is stuck: "warn" logs a warning,
        "stop" also sets `should_stop`, "raise" raises a `StuckError`.
      global_step: The variable that counts the applied steps. The monitor knows
        it by itself if `apply_gradients` gets it.

    Raises:
      RuntimeError: A graph of TensorFlow 1 is the default graph.
      ValueError: An argument is none of these; the message names it.
    """
    if not tf.executing_eagerly():
      raise RuntimeError(
        "Monitor watches eager code and tf.function, but was made in a graph: "
        "use LossScaleHook for training in a session, or make the monitor "
        "outside of the tf.function."
      )
    self._settings = recorder.Settings(
      output_dir, every_n_steps, blame, on_stuck, patience
    )
    self._global_step = global_step
    self._inputs: Any = None
    self._lock = threading.Lock()
    self._has_warned = False
    self._calls = 0  # Of `step`, as long as there was no step.
    self.should_stop = False
    likely = watched.find_optimizer(optimizer, keras=True)
    found = watched.list_optimizers(optimizer, keras=True)
    # The first optimizer that takes a step from now on is watched.
    self._candidates = [self._observe_steps(x) for x in found]
    self._watch(next(x for x in self._candidates if x.optimizer is likely))

  def _observe_steps(self, optimizer: Any) -> _Watched:
    """Begins to observe the steps of an optimizer."""
    loss_scale = watched.find_loss_scale(optimizer)
    steps = optimizer_steps.find(optimizer)
    steps.add_monitor(self, self._settings.measure_every)
    # The monitor counts only steps from now on.
    steps.take(0, loss_scale, self._global_step)
    return _Watched(
      optimizer, loss_scale, steps, steps.attempted, steps.skipped
    )

  def _watch(self, candidate: _Watched) -> None:
    """Makes the monitor watch one of the optimizers."""
    self._watched = candidate
    self._seen, self._skipped = candidate.attempted, candidate.skipped
    self._recorder = recorder.Recorder(
      self._settings, watched.describe(candidate.loss_scale)
    )

  def step(self, inputs: Any = None) -> bool | None:
    """Takes note of the training steps since the last call.

    Call this after each training step, or after several. Each of the last 1000
    steps since the last call is known by itself; of earlier steps, the monitor
    knows how many there were and how many were skipped. A call costs a
    fraction of a millisecond, since the values come from the device.

    Args:
      inputs: A nest of what the step was fed. If the run is stuck, the folder
        `stuck-STEP` in `output_dir` keeps the shapes and dtypes.

    Returns:
      Whether the last of these steps was applied; None if there was no step.

    Raises:
      RuntimeError: This is called in a `tf.function`.
      StuckError: The run is stuck, and `on_stuck` is "raise".
    """
    with self._lock:
      steps = self._take()
      self._inputs = inputs
      missed = 0
      for each in steps:
        missed += self._pass_over(each)
        self._seen, self._skipped = each.number, each.skipped
        self._observe(each)
      if missed:
        logging.warning(
          "Monitor: %d steps were taken between two calls of step(). Of %d, "
          "only their number is known: call step() more often.",
          missed + len(steps),
          missed,
        )
      return steps[-1].applied if steps else None

  def close(self) -> None:
    """Takes note of the last steps, writes the last line, closes the files.

    A monitor that is closed goes on with the next `step`.

    Raises:
      StuckError: The run is stuck, and `on_stuck` is "raise".
    """
    try:
      self.step()
    finally:
      self._recorder.close()

  def __enter__(self) -> Monitor:
    """Returns the monitor, which is closed when the context ends."""
    return self

  def __exit__(self, kind: Any, *error: object) -> None:
    """Closes the monitor."""
    if kind is None:
      self.close()
    else:
      self._recorder.close()

  def _take(self) -> list[Step]:
    """Returns the steps that are not known yet."""
    if not tf.executing_eagerly():
      raise RuntimeError(
        "Monitor.step() was called in a graph: call it after the tf.function "
        "that takes the training step, not inside."
      )
    for each in self._candidates:
      if self._take_from(each, each.attempted):
        if each is not self._watched:
          self._watch(each)
        self._candidates = []
        break
    if self._candidates:
      self._warn_of_silence()
      return []
    return self._take_from(self._watched, self._seen)

  def _take_from(self, candidate: _Watched, seen: int) -> list[Step]:
    """Returns the steps of an optimizer after the first `seen` ones."""
    return candidate.steps.take(seen, candidate.loss_scale, self._global_step)

  def _warn_of_silence(self) -> None:
    """Warns if the optimizer has taken no step in many calls of `step`."""
    self._calls += 1
    if self._calls == _MANY_CALLS:
      logging.warning(
        "Monitor: step() was called %d times, but %r took no step. Pass the "
        "optimizer whose minimize() or apply_gradients() is called. If its "
        "class overrides apply_gradients(), that method must call super().",
        self._calls,
        self._watched.optimizer,
      )

  def _pass_over(self, step: Step) -> int:
    """Counts the steps before a step that are not known.

    If the recorder has not started, it starts with the state before them.

    Returns:
      The number of these steps.
    """
    missed = step.number - self._seen - 1
    skipped = step.skipped - (not step.applied) - self._skipped
    if not self._recorder.is_started:
      state = step.after if step.before is None else step.before
      if state.global_step is not None:
        done = missed - skipped + (step.before is None and step.applied)
        state = state._replace(global_step=state.global_step - done)
      self._recorder.start(state)
    if missed:
      self._recorder.pass_over(missed, skipped)
    return missed

  def _observe(self, step: Step) -> None:
    """Records a step."""
    if step.before is None and not self._has_warned:
      self._has_warned = True
      logging.warning(
        "Monitor: the tf.function that takes the steps was traced before the "
        "monitor was made, so the monitor sees no gradients and counts one "
        "step for each call of step(). Make the monitor before the first call "
        "of the function."
      )
    if self._recorder.observe(step, self._keep):
      self.should_stop = True

  def _keep(self, folder: str, message: str) -> None:
    """Keeps the state of a stuck run."""
    variables = [
      *self._watched.optimizer.variables(),
      *(refer() for refer in self._watched.steps.variables),
    ]
    found = {id(x): x for x in variables if x is not None}
    keeping.keep_variables(found.values(), folder, message, self._inputs)
