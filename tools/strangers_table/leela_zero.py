# SPDX-License-Identifier: Apache-2.0
"""Leela Zero: a loop of its own in float16, with parsers in processes."""

import gzip
import pathlib
import struct

import numpy as np

from strangers_table import Program

# The project trains until somebody interrupts it, in batches of 512 from a
# buffer of two gigabytes, and saves each 8000 steps.
_START = """
import runpy, sys
import tensorflow as tf
import chunkparser, tfprocess

script, steps = sys.argv[1], int(sys.argv[2])
del sys.argv[:2]
sys.argv[0] = script
make_config, make_net = tf.ConfigProto, tfprocess.TFProcess.init
make_parser = chunkparser.ChunkParser.__init__
measure_loss = tfprocess.TFProcess.measure_loss

def make_cpu_config(**kwargs):
  config = make_config(**kwargs)
  config.graph_options.rewrite_options.cpu_layout_conversion = 1
  return config

def make_small_parser(self, source, **kwargs):
  make_parser(self, source, **{**kwargs, "shuffle_size": 16, "batch_size": 4})

def make_small_net(self, batch_size, **kwargs):
  make_net(self, 4, **{**kwargs, "macrobatch": 2})

def measure_and_save(self, batch, training=False):
  losses = measure_loss(self, batch, training)
  step = tf.train.global_step(self.session, self.global_step)
  if step == steps:
    self.saver.save(self.session, "model/net", global_step=step)
    print("total loss", losses["total"])
    sys.exit()
  return losses

if __name__ == "__main__":
  tf.ConfigProto = make_cpu_config
  tfprocess.TFProcess.init = make_small_net
  chunkparser.ChunkParser.__init__ = make_small_parser
  tfprocess.TFProcess.measure_loss = measure_and_save
  runpy.run_path(script, run_name="__main__")
"""


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes noise as games, and edits the type as the source says."""
  folder = repo / "training" / "tf"
  (folder / "start.py").write_text(_START)
  program = folder / "tfprocess.py"
  kind = "self.model_dtype = tf.float"
  program.write_text(program.read_text().replace(kind + "32", kind + "16"))
  random = np.random.RandomState(1)
  (work / "model").mkdir()
  for i in range(4):
    with gzip.open(work / f"game{i}.gz", "wb", 1) as file:
      for _ in range(64):
        moves = random.dirichlet(np.ones(362)).astype(np.float32).tobytes()
        planes = random.randint(0, 256, 722).astype(np.uint8).tobytes()
        sides = random.randint(0, 2, 2).tolist()
        file.write(struct.pack("<i1448s722sBB", 1, moves, planes, *sides))


_PROGRAM = ("{repo}/training/tf/start.py", "{repo}/training/tf/parse.py")
_FLAGS = ("1", "8", "{work}/game")

PROGRAM = Program(
  name="leela-zero",
  repository="leela-zero/leela-zero",
  commit="3ee6d20d0b36ae26120331c610926359cc5837de",
  paths=("training/tf",),
  title="training/tf/parse.py",
  folder=None,
  path=("training/tf",),
  start=((*_PROGRAM, "10", *_FLAGS, "--sample=1"),),
  resume=((*_PROGRAM, "20", *_FLAGS, "{work}/model/net-10", "--sample=1"),),
  checkpoint="{work}/model",
  prepare=prepare,
  prints=r"total loss \d",
  scale="the loss scale is fixed",
  remark="in float16; a program of ours sets small batches and layouts for a "
  "CPU, and saves",
)
