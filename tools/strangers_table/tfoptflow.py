# SPDX-License-Identifier: Apache-2.0
"""PWC-Net: optical flow in float16, with a fixed loss scale of tf.contrib."""

import pathlib

from strangers_table import Program

# The project trains in notebooks, on its own data.
_TRAIN = """
import copy
import sys
import numpy as np
import tensorflow as tf
from model_pwcnet import ModelPWCNet, _DEFAULT_PWCNET_TRAIN_OPTIONS

class Noise:
  val_size = 1
  def next_batch(self, count, split):
    x = np.random.randint(0, 255, (count, 2, 64, 64, 3)).astype(np.uint8)
    return x, np.random.randn(count, 64, 64, 2).astype(np.float32), None

options = copy.deepcopy(_DEFAULT_PWCNET_TRAIN_OPTIONS)
options.update(
    ckpt_dir=sys.argv[1], max_steps=int(sys.argv[2]), verbose=True,
    batch_size=1, x_shape=[2, 64, 64, 3], y_shape=[64, 64, 2],
    use_tf_data=False, gpu_devices=['/device:CPU:0'],
    controller='/device:CPU:0', use_mixed_precision=True,
    x_dtype=tf.float16, lr_policy='cyclic', display_step=5,
    snapshot_step=10, val_step=1000, val_batch_size=0, tb_val_imgs=None)
ModelPWCNet(mode='train_noval', options=options, dataset=Noise()).train()
"""


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes a program that trains as the project's notebooks do, on noise."""
  del work
  (repo / "tfoptflow" / "train.py").write_text(_TRAIN)


PROGRAM = Program(
  name="tfoptflow",
  repository="philferriere/tfoptflow",
  commit="8a5f51885800ecdc39f68e8e827a67a198a53c5e",
  paths=(":(glob)tfoptflow/*.py",),
  title="tfoptflow/model_pwcnet.py",
  folder="tfoptflow",
  needs={
    "cv2": "opencv-python-headless",
    "matplotlib": "matplotlib",
    "pandas": "pandas",
    "skimage": "scikit-image",
    "tf_slim": "tf_slim",
    "tqdm": "tqdm",
  },
  start=(("train.py", "{work}/model/", "10"),),
  resume=(("train.py", "{work}/model/", "20"),),
  checkpoint="{work}/model",
  prepare=prepare,
  scale="the loss scale is fixed",
  remark="a program of ours calls the model as its notebooks do",
)
