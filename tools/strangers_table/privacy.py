# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Privacy's tutorial, whose layers are called by `apply`."""

from strangers_table import _mnist
from strangers_table import Program

PROGRAM = Program(
  name="privacy",
  repository="tensorflow/privacy",
  commit="aead0aeb3e4c4b1a28f86d38c8bb57cb0412e8fd",
  paths=("tensorflow_privacy", "tutorials"),
  title="tutorials/mnist_dpsgd_tutorial.py",
  start=(
    (
      *("start.py", "0", "tutorials/mnist_dpsgd_tutorial.py", "--epochs=1"),
      *("--batch_size=32", "--microbatches=32", "--model_dir={work}/model"),
    ),
  ),
  checkpoint="{work}/model",
  needs={"scipy": "scipy", "mpmath": "mpmath"},
  prepare=_mnist.prepare,
  prints=r"Test accuracy after 1 epochs is: \d",
  scale="no loss scale: it trains in float32",
  remark="version 0.2.2; noise in place of MNIST",
)
