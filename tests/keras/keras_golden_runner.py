# SPDX-License-Identifier: Apache-2.0
"""Restores Keras objects of old releases, trains on, and prints the results.

The module is a program of its own, because Keras 2 is chosen for a whole
process:

  python keras_golden_runner.py GOLDEN_DIR... > results.json
"""

import json
import os
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tf_compat_lossscale as tfl

tfl.use_keras_2()

import golden_runner
import numpy as np
import tensorflow as tf

from tf_compat_lossscale import keras

# These hyperparameters differ from the goldens': a restore must overwrite them.
_INNER = {
  "adam": lambda: tf.keras.optimizers.legacy.Adam(0.5, beta_1=0.5),
  "sgd": lambda: tf.keras.optimizers.legacy.SGD(0.5, momentum=0.1),
}
_SCALES = {
  "dynamic": lambda: tfl.DynamicLossScale(7.0, 3),
  "string": lambda: "dynamic",
  "fixed": lambda: 128.0,
}


def by_checkpoint(golden, expected):
  """Restores an object-based checkpoint and trains on; returns rows."""
  optimizer = keras.LossScaleOptimizer(
    _INNER[expected["inner"]](), _SCALES[expected["kind"]]()
  )
  model = tf.keras.Sequential(
    [tf.keras.layers.InputLayer((4,)), tf.keras.layers.Dense(3, name="dense")]
  )
  status = tf.train.Checkpoint(model=model, optimizer=optimizer).restore(
    os.path.join(golden, expected["object_path"])
  )
  status.assert_existing_objects_matched()
  rows = []
  for row in expected["rows"][expected["steps_before"] :]:
    x, y = golden_runner.batch(expected["seed"] + row["i"])
    poison = np.float32(np.inf if row["poisoned"] else 1)
    variables = model.trainable_variables
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean(tf.square(model(x) - y)) * poison
      loss = optimizer.get_scaled_loss(loss)
    grads = optimizer.get_unscaled_gradients(tape.gradient(loss, variables))
    optimizer.apply_gradients(zip(grads, variables))
    counter = optimizer.dynamic_counter
    rows.append(
      {
        "loss_scale": float(optimizer.loss_scale),
        "good_steps": None if counter is None else int(counter),
        "iterations": int(optimizer.iterations),
        "w": variables[0].numpy().tolist(),
        "b": variables[1].numpy().tolist(),
      }
    )
  status.assert_consumed()
  return rows


def of_model(golden, expected):
  """Loads a compiled model from each form that was saved; returns results."""
  results = {}
  probe = golden_runner.batch(expected["seed"] + 999)[0]

  def note(form, model):
    model.run_eagerly = True  # Tracing takes time.
    optimizer = model.optimizer
    results[form] = {
      "probe": model.predict_on_batch(probe).tolist(),
      "loss_scale": float(optimizer.loss_scale),
      "good_steps": int(optimizer.dynamic_counter),
      "initial_scale": float(optimizer.initial_scale),
      "growth_steps": int(optimizer.dynamic_growth_steps),
      "iterations": int(optimizer.iterations),
      "legacy": isinstance(
        optimizer.inner_optimizer, tf.keras.optimizers.legacy.Optimizer
      ),
    }

  for form in ("model.h5", "saved_model"):
    path = os.path.join(golden, form)
    written = f"no_{form.strip('model.').replace('_', '')}" not in expected
    if os.path.exists(path) and written:
      note(form, keras.load_model(path))
  config = expected["policy_config"]
  if isinstance(config, str):  # The old release could not make a config.
    config = {"name": "mixed_float16", "loss_scale": 64.0}
    config["loss_scale"] = tfl.DynamicLossScale(64.0, 3)
  keras.set_policy(keras.Policy.from_config(config))
  model = tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer((4,)),
      tf.keras.layers.Dense(3, name="dense"),
      tf.keras.layers.Activation("linear", dtype="float32", name="out"),
    ]
  )
  model.compile(_INNER["sgd"](), "mse")
  keras.set_policy(None)
  status = model.load_weights(os.path.join(golden, "weights", "ckpt"))
  status.assert_existing_objects_matched()
  note("weights", model)
  if isinstance(expected["optimizer_config"], dict):
    config = expected["optimizer_config"]
    for part in ("optimizer", "inner_optimizer"):  # Numbers are strings.
      if part in config:
        config[part]["config"] = {
          key: float(value)
          if key in ("decay", "learning_rate", "momentum")
          else value
          for key, value in config[part]["config"].items()
        }
    made = keras.LossScaleOptimizer.from_config(config)
    results["config"] = {
      "initial_scale": float(made.initial_scale),
      "growth_steps": int(made.dynamic_growth_steps),
      "legacy": isinstance(
        made.inner_optimizer, tf.keras.optimizers.legacy.SGD
      ),
      "momentum": float(made.inner_optimizer.momentum),
    }
  return results


def main():
  results = {}
  for golden in sys.argv[1:]:
    with open(os.path.join(golden, "expected.json")) as f:
      expected = json.load(f)
    way = by_checkpoint if "rows" in expected else of_model
    try:
      results[golden] = way(golden, expected)
    except Exception:  # The test that reads the traceback fails.
      results[golden] = traceback.format_exc()
  json.dump(results, sys.stdout)


if __name__ == "__main__":
  main()
