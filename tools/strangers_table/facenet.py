# SPDX-License-Identifier: Apache-2.0
"""facenet: layers of slim, and queues of pictures, on noise."""

import pathlib

import numpy as np

from strangers_table import _python_2
from strangers_table import _switch
from strangers_table import Program

# The program names the folder of a checkpoint after the time.
_START = """
import glob, shutil, sys
import tensorflow as tf
import train_softmax

work, latest = sys.argv[1], tf.train.latest_checkpoint(sys.argv[1] + "/model")
more = ["--pretrained_model=" + latest] if latest else []
train_softmax.main(train_softmax.parse_arguments([
    "--logs_base_dir=" + work + "/logs", "--models_base_dir=" + work + "/made",
    "--data_dir=" + work + "/faces", "--model_def=models.squeezenet",
    "--max_nrof_epochs=2", "--epoch_size=5", "--batch_size=4",
    "--image_size=64", "--embedding_size=16", "--optimizer=ADAM",
    "--learning_rate=0.001", "--nrof_preprocess_threads=1", *more]))
shutil.rmtree(work + "/model", ignore_errors=True)
shutil.move(sorted(glob.glob(work + "/made/*"))[-1], work + "/model")
"""


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes a program that sets flags, and pictures of noise."""
  from PIL import Image

  _python_2.convert(repo / "src", "dict")
  (repo / "src" / "start.py").write_text(_START)
  random = np.random.RandomState(1)
  for person in range(3):
    folder = work / "faces" / f"person{person}"
    folder.mkdir(parents=True)
    for i in range(8):
      pixels = random.randint(0, 256, [64, 64, 3]).astype(np.uint8)
      Image.fromarray(pixels).save(folder / f"person{person}_{i:04}.png")


PROGRAM = Program(
  name="facenet",
  repository="davidsandberg/facenet",
  commit="096ed770f163957c1e56efa7feeb194773920f6e",
  paths=("src",),
  title="src/train_softmax.py",
  folder="src",
  start=(("start.py", "{work}"),),
  checkpoint="{work}/model",
  needs={
    "PIL": "pillow",
    "scipy": "scipy",
    "six": "six",
    "sklearn": "scikit-learn",
    "tf_slim": "tf_slim",
  },
  environment=_switch.SWITCH["environment"],
  migrate=_switch.SWITCH["migrate"],
  prepare=prepare,
  scale="it saves weights alone",
  remark=f"{_switch.REMARK}; {_python_2.REMARK}",
)
