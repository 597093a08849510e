# SPDX-License-Identifier: Apache-2.0
"""Starts programs that load MNIST, with noise in its place."""

import pathlib

# Its first argument is the step at which a hook of the program stops.
_START = """
import runpy, sys
import numpy as np
import tensorflow as tf
from tensorflow import keras

tf.logging.set_verbosity(tf.logging.INFO)
steps = int(sys.argv[1])
make_hook = tf.train.StopAtStepHook

def load_data(path="mnist.npz"):
  random = np.random.RandomState(1)
  images = random.randint(0, 256, [320, 28, 28]).astype(np.uint8)
  images[0, 0, :2] = 0, 255
  labels = random.randint(0, 10, [320]).astype(np.uint8)
  return (images, labels), (images, labels)

keras.datasets.mnist.load_data = load_data
tf.train.StopAtStepHook = lambda num_steps=None, last_step=None: (
    make_hook(None, steps) if steps else make_hook(num_steps, last_step))
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes what starts the programs."""
  del work
  (repo / "start.py").write_text(_START)
