# SPDX-License-Identifier: Apache-2.0
"""hok_env: the learner of a game, by the graph rewrite, on random samples."""

import pathlib

from strangers_table import LOSS
from strangers_table import Program

# The project's setup.py files install parts of one package; its learner trains
# on random samples with `--single_test`, and writes below /aiarena.
_TRAIN = """
import os
import sys
work, steps, is_resumed = sys.argv[1], sys.argv[2], sys.argv[3] == 'resume'
import numpy as np
import tensorflow as tf
import train
from common.config import Config
from rl_framework.learner.dataset.network_dataset.tensorflow import (
    network_dataset_random)
from rl_framework.learner.framework.common import log_manager
from rl_framework.learner.framework.common.config_control import ConfigControl
from rl_framework.learner.framework.tensorflow import model_manager

class Samples(network_dataset_random.NetworkDataset):
  batches = 0

  def next_batch(self):
    self.batches += 1
    if self.batches in (1, 2):  # So the loss scale moves.
      return [np.full_like(self.sample, np.inf)]
    return super().next_batch()

class Manager(model_manager.ModelManager):
  def save_model(self, sess, *args):
    print(*sess.run([v for v in tf.global_variables()
                    if 'current_loss_scale' in v.name]), flush=True)
    return super().save_model(sess, *args)

network_dataset_random.NetworkDataset = Samples
model_manager.ModelManager = Manager
train.train_log = os.path.join(work, 'train.log')
log_manager.LogManagerBase.__init__.__defaults__ = (
    os.path.join(work, 'loss.txt'), 'tensorflow')
config = ConfigControl(train.config_path)
config.backend = 'tensorflow'
config.batch_size = 2
config.max_steps = int(steps)
config.display_every = 1
config.use_mix_precision = True
config.use_xla = False
config.save_model_dir = os.path.join(work, 'model')
config.send_model_dir = os.path.join(work, 'sent')
config.train_dir = os.path.join(work, 'supervisor')
config.use_init_model = is_resumed
config.init_model_path = config.save_model_dir
if __name__ == '__main__':
  train.run(Config, config, True)
"""


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Puts the package together, and writes a program that calls the learner."""
  del work
  package = repo / "aiarena" / "1v1" / "rl_framework"
  package.mkdir(parents=True)
  (package / "__init__.py").touch()
  for part in ("common", "learner", "mem_pool", "monitor"):
    found = repo / "rl_framework" / part / "rl_framework" / part
    found.rename(package / part)
  (repo / "aiarena/1v1/learner/start.py").write_text(_TRAIN)


PROGRAM = Program(
  name="hok",
  repository="tencent-ailab/hok_env",
  commit="c6e0029a5e4b6e037a049804fdbe23ac74484311",
  paths=(
    "aiarena/1v1",
    *(f"rl_framework/{x}" for x in ("common", "learner", "mem_pool")),
    "rl_framework/monitor",
  ),
  title="aiarena/1v1/learner/train.py --single_test",
  folder="aiarena/1v1/learner",
  importable=("influxdb", "lz4", "zmq"),
  needs={"loguru": "loguru"},
  start=(("start.py", "{work}", "10", "start"),),
  resume=(("start.py", "{work}", "10", "resume"),),
  checkpoint="{work}/model",
  prepare=prepare,
  loss=LOSS,
  prints=r"32768\.0\n(?s:.*)8192\.0\n",
  scale="the loss scale falls from 32768 to 8192; the program leaves it out "
  "of its checkpoints",
  remark="random samples, the first two of them infinite; a program of ours "
  "sets the configuration, `use_mix_precision` among it",
)
