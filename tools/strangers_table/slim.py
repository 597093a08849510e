# SPDX-License-Identifier: Apache-2.0
"""slim's trainer of image classifiers, from NVIDIA's copy, on noise."""

import pathlib

import numpy as np
import tensorflow as tf

from strangers_table import _switch
from strangers_table import Program

_FOLDER = "TensorFlow/Detection/SSD/models/research/slim"


def _train(steps: int) -> tuple[str, ...]:
  return (
    *("train_image_classifier.py", "--dataset_name=mnist", "--batch_size=4"),
    *("--dataset_dir={work}", "--train_dir={work}/model", "--model_name=lenet"),
    *(
      "--clone_on_cpu",
      f"--max_number_of_steps={steps}",
      "--log_every_n_steps=1",
    ),
    *("--num_preprocessing_threads=1", "--optimizer=momentum"),
  )


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes noise in the format of the project's MNIST."""
  del repo
  random = np.random.RandomState(1)
  with tf.io.TFRecordWriter(str(work / "mnist_train.tfrecord")) as writer:
    for i in range(64):
      image = random.randint(0, 256, [28, 28, 1]).astype(np.uint8)
      features = tf.train.Features()
      encoded = tf.io.encode_png(image).numpy()
      features.feature["image/encoded"].bytes_list.value.append(encoded)
      features.feature["image/format"].bytes_list.value.append(b"png")
      features.feature["image/class/label"].int64_list.value.append(i % 10)
      for side in ("height", "width"):
        features.feature[f"image/{side}"].int64_list.value.append(28)
      writer.write(tf.train.Example(features=features).SerializeToString())
  (work / "labels.txt").write_text("\n".join(f"{i}:{i}" for i in range(10)))


PROGRAM = Program(
  name="slim",
  repository="NVIDIA/DeepLearningExamples",
  commit="982c3900258ccd0f7d340d486e6414932e9a2dc4",
  paths=(_FOLDER,),
  title=f"{_FOLDER.partition('/')[2]}/train_image_classifier.py",
  folder=_FOLDER,
  needs={"six": "six", "tf_slim": "tf_slim"},
  start=(_train(10),),
  resume=(_train(20),),
  checkpoint="{work}/model",
  prepare=prepare,
  **_switch.SWITCH,
  remark=f"{_switch.REMARK}; noise in place of MNIST",
)
