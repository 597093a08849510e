# SPDX-License-Identifier: Apache-2.0
"""RetinaNet of tensorflow/tpu, on a CPU, on pictures of noise."""

import pathlib

import numpy as np
import tensorflow as tf

from strangers_table import _switch
from strangers_table import Program

_FOLDER = "models/official/retinanet"
_SIZES = (
  "image_size=64,max_level=5,num_scales=1,resnet_depth=18,num_classes=4,"
  "use_bfloat16=false"
)


def _train(steps: int) -> tuple[str, ...]:
  return (
    *("retinanet_main.py", "--use_tpu=False", "--num_gpus=0", "--num_epochs=1"),
    *("--distribution_strategy=mirrored", "--auto_mixed_precision"),
    *("--training_file_pattern={work}/train*", "--model_dir={work}/model"),
    *("--train_batch_size=1", f"--num_examples_per_epoch={steps}"),
    f"--hparams={_SIZES}",
  )


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes pictures of noise, each with a box."""
  del repo
  random = np.random.RandomState(1)
  with tf.io.TFRecordWriter(str(work / "train-00000")) as writer:
    for i in range(8):
      image = random.randint(0, 256, [64, 64, 3]).astype(np.uint8)
      features = tf.train.Features()
      feature = features.feature
      encoded = tf.io.encode_jpeg(image).numpy()
      feature["image/encoded"].bytes_list.value.append(encoded)
      feature["image/source_id"].bytes_list.value.append(str(i).encode())
      box = feature["image/object/class/label"]
      box.int64_list.value.append(1 + i % 3)
      for name, value in (
        *(("bbox/xmin", 0.2), ("bbox/xmax", 0.6), ("bbox/ymin", 0.2)),
        *(("bbox/ymax", 0.6), ("area", 400.0)),
      ):
        feature[f"image/object/{name}"].float_list.value.append(value)
      feature["image/object/is_crowd"].int64_list.value.append(0)
      writer.write(tf.train.Example(features=features).SerializeToString())


PROGRAM = Program(
  name="retinanet",
  repository="tensorflow/tpu",
  commit="a52b5229a82da1201e448a3002945ce7e0160c49",
  paths=(":(glob)models/official/retinanet/**/*.py", "models/common"),
  title=f"{_FOLDER}/retinanet_main.py --auto_mixed_precision",
  folder=_FOLDER,
  path=("models",),
  importable=("pycocotools",),
  needs={"PIL": "pillow", "six": "six", "tf_slim": "tf_slim"},
  start=(_train(10),),
  resume=(_train(20),),
  checkpoint="{work}/model",
  prepare=prepare,
  settings=_switch.NEARLY_FULL,
  initial=2.0**15,
  timeout=500,
)
