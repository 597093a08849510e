# SPDX-License-Identifier: Apache-2.0
"""tensorpack: an example of its own trainer, on noise as digits."""

import gzip
import pathlib
import struct

import numpy as np

from strangers_table import Program

# The example trains a hundred epochs from the start. This trains as many as it
# is told, from the last checkpoint if there is one.
_START = """
import runpy, sys
import tensorflow as tf
import tensorpack

script, epochs = sys.argv[1], int(sys.argv[2])
launch = tensorpack.launch_train_with_config
choose_folder = tensorpack.logger.auto_set_dir

def launch_shortly(config, trainer):
  saved = tf.train.latest_checkpoint(tensorpack.logger.get_logger_dir())
  if saved:
    config.session_init = tensorpack.SmartInit(saved)
  config.starting_epoch, config.max_epoch = epochs, epochs
  launch(config, trainer)

tensorpack.launch_train_with_config = launch_shortly
tensorpack.logger.auto_set_dir = lambda: choose_folder("k")
runpy.run_path(script, run_name="__main__")
"""


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes noise in MNIST's format, and what starts the example."""
  (repo / "start.py").write_text(_START)
  random = np.random.RandomState(1)
  folder = work / "mnist_data"
  folder.mkdir()
  for name, count in (("train", 1280), ("t10k", 256)):
    with gzip.open(folder / f"{name}-images-idx3-ubyte.gz", "wb", 1) as file:
      file.write(struct.pack(">4i", 2051, count, 28, 28))
      file.write(random.randint(0, 256, count * 784).astype(np.uint8).tobytes())
    with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz", "wb", 1) as file:
      file.write(struct.pack(">2i", 2049, count))
      file.write(random.randint(0, 10, count).astype(np.uint8).tobytes())


_EXAMPLE = "{repo}/examples/basics/mnist-convnet.py"

PROGRAM = Program(
  name="tensorpack",
  repository="tensorpack/tensorpack",
  commit="1547a54e8546494614ca31c984a1bfd1d0e24b77",
  paths=("tensorpack", "examples/basics"),
  title="examples/basics/mnist-convnet.py",
  folder=None,
  path=(".",),
  needs={
    "msgpack_numpy": "msgpack-numpy",
    "psutil": "psutil",
    "six": "six",
    "tabulate": "tabulate",
    "termcolor": "termcolor",
    "tqdm": "tqdm",
    "zmq": "pyzmq",
  },
  start=(("{repo}/start.py", _EXAMPLE, "1"),),
  resume=(("{repo}/start.py", _EXAMPLE, "2"),),
  checkpoint="{work}/train_log/mnist-convnet",
  prepare=prepare,
  environment={"TENSORPACK_DATASET": "{work}"},
  scale="no loss scale: it trains in float32",
  remark="a program of ours sets the number of epochs, and resumes",
)
