# SPDX-License-Identifier: Apache-2.0
"""Times `LossScaleCallback` within Keras 2's `fit`, for a small network.

python -m benchmarks.callback
"""

from __future__ import annotations

import os
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl

_STEPS = 500


def main() -> None:
  layers = tf.keras.layers
  model = tf.keras.Sequential(
    [
      layers.Conv2D(32, 3, 2, "same", activation="relu"),
      layers.Conv2D(64, 3, 2, "same", activation="relu"),
      layers.Flatten(),
      layers.Dense(128, "relu"),
      layers.Dense(10),
    ]
  )
  optimizer = tf.keras.optimizers.legacy.SGD(0.01, 0.9)
  model.compile(
    tfl.keras.LossScaleOptimizer(optimizer, "dynamic"),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  images = np.random.default_rng(0).random((64, 32, 32, 3), np.float32)
  data = tf.data.Dataset.from_tensors((images, np.arange(64) % 10)).repeat()

  spent = 0.0

  class Timed(tfl.keras.LossScaleCallback):
    def on_train_batch_end(self, *args: object, **kwargs: object) -> None:
      nonlocal spent
      begin = time.perf_counter()
      super().on_train_batch_end(*args, **kwargs)
      spent += time.perf_counter() - begin

  callback = Timed(tempfile.mkdtemp())
  model.fit(data, steps_per_epoch=_STEPS, verbose=0, callbacks=[callback])
  spent, begin = 0.0, time.perf_counter()
  model.fit(data, steps_per_epoch=_STEPS, verbose=0, callbacks=[callback])
  rest = time.perf_counter() - begin - spent
  print(
    f"TensorFlow {tf.__version__}: LossScaleCallback takes "
    f"{1e3 * spent / _STEPS:.3f} ms of a step of {1e3 * rest / _STEPS:.1f} ms: "
    f"{1 + spent / rest:.3f} times the step without it"
  )


if __name__ == "__main__":
  main()
