# SPDX-License-Identifier: Apache-2.0
"""A callback of Keras 2 that watches the loss scale of `Model.fit`."""

from __future__ import annotations

import os
from typing import Any

from tf_compat_lossscale.keras import callbacks
from tf_compat_lossscale.monitoring import monitor
from tf_compat_lossscale.monitoring import stuck
from tf_compat_lossscale.monitoring import watched


class LossScaleCallback(callbacks.Callback):
  """Watches the loss scale of `Model.fit` of Keras 2, as `Monitor` does.

  ```
  opt = keras.LossScaleOptimizer(tf.keras.optimizers.Adam(), "dynamic")
  model.compile(opt, loss="mse")
  model.fit(x, y, callbacks=[LossScaleCallback(output_dir="logs/run")])
  ```

  If a model has been trained before it gets its first callback of this class,
  Keras may go on with a function that tells no gradients; `Monitor` explains.
  """

  # Keras need not copy the logs of each batch to the host.
  _supports_tf_logs = True

  def __init__(
    self,
    output_dir: str | os.PathLike[str] | None = None,
    every_n_steps: int = 100,
    blame: bool = True,
    on_stuck: stuck.Reaction = "warn",
    patience: int = 200,
  ) -> None:
    """Creates a callback; nothing is watched yet.

    The arguments that are not listed here are those of `Monitor`.

    Args:
      on_stuck: What happens if the run is stuck: "warn" logs a warning, "stop"
        also stops the training, "raise" raises a `StuckError`.

    Raises:
      ValueError: `on_stuck` is another value.
    """
    super().__init__()
    self._arguments: dict[str, Any] = {
      "output_dir": output_dir,
      "every_n_steps": every_n_steps,
      "blame": blame,
      "on_stuck": stuck.check_reaction(on_stuck),
      "patience": patience,
    }
    self._optimizer: Any = None
    self._monitor: monitor.Monitor | None = None

  def on_train_begin(self, logs: Any = None) -> None:
    """Begins to watch the optimizer of the model.

    Raises:
      RuntimeError: The model trains in a graph of TensorFlow 1.
      ValueError: The model has no optimizer with a loss scale of this package,
        or several optimizers; or an argument of the constructor makes no sense.
    """
    del logs
    optimizer = self._find_optimizer()
    if self._monitor is None or optimizer is not self._optimizer:
      self._monitor = monitor.Monitor(optimizer, **self._arguments)
      self._optimizer = optimizer
    self._monitor.should_stop = False

  def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
    """Takes note of a step, or of several if one execution does several.

    Raises:
      StuckError: The run is stuck, and `on_stuck` is "raise".
    """
    del batch, logs
    assert self._monitor is not None
    try:
      self._monitor.step()
    except stuck.StuckError:
      self._monitor.close()
      raise
    if self._monitor.should_stop:
      self.model.stop_training = True

  def on_train_end(self, logs: Any = None) -> None:
    """Writes the last step, and closes the files."""
    del logs
    assert self._monitor is not None
    self._monitor.close()

  def _find_optimizer(self) -> Any:
    """Returns the optimizer of the model.

    Raises:
      ValueError: It has no loss scale of this package, or there are several.
    """
    optimizer = getattr(self.model, "optimizer", None)
    try:
      watched.find_optimizer(optimizer, keras=True)
    except ValueError as error:
      raise ValueError(
        "LossScaleCallback watches a model that is compiled with one "
        "optimizer that has a loss scale: call model.compile("
        "tf_compat_lossscale.keras.LossScaleOptimizer(optimizer, 'dynamic'), "
        f"…). {error}"
      ) from None
    return optimizer
