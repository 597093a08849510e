# SPDX-License-Identifier: Apache-2.0
"""tensorflow-DeepFM: a class of scikit-learn's kind, with a session."""

import pathlib

from strangers_table import Program

# The project's example needs a contest's data: this one has noise, and saves.
_START = """
import os, sys
import numpy as np
import tensorflow as tf
from DeepFM import DeepFM

fields, features, random = 5, 40, np.random.RandomState(1)
x = random.randint(0, features, [64, fields]).tolist()
values, y = np.ones([64, fields]).tolist(), random.randint(0, 2, 64).tolist()
net = DeepFM(features, fields, embedding_size=4, deep_layers=[8, 8], epoch=5,
             batch_size=16, batch_norm=1, verbose=1)
if os.path.exists("model/checkpoint"):
  net.saver.restore(net.sess, tf.train.latest_checkpoint("model"))
net.fit(x, values, y, x, values, y)
os.makedirs("model", exist_ok=True)
net.saver.save(net.sess, "model/net")
"""


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes a program that trains on noise."""
  del work
  (repo / "start.py").write_text(_START)


PROGRAM = Program(
  name="deepfm",
  repository="ChenglongChen/tensorflow-DeepFM",
  commit="a43dd5ff1f61a275c8a6e0fd659e200af64093cc",
  title="DeepFM.py",
  folder=None,
  path=(".",),
  importable=("yellowfin",),
  needs={"sklearn": "scikit-learn", "tf_slim": "tf_slim"},
  start=(("{repo}/start.py",),),
  checkpoint="{work}/model",
  prepare=prepare,
  prints=r"train-result=\d",
  scale="no loss scale: it trains in float32",
)
