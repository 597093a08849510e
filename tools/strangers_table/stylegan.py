# SPDX-License-Identifier: Apache-2.0
"""StyleGAN's ProGAN in float16, with two loss scales of the program's own."""

import pathlib

import numpy as np
import tensorflow as tf

from strangers_table import Program

# A CPU has no NCHW.
MOVE_CHANNELS = """
import tensorflow as tf

def move(sizes):
  if isinstance(sizes, (list, tuple)) and len(sizes) == 4:
    return [sizes[i] for i in (0, 2, 3, 1)]
  return sizes

def move_channels(function):
  def call(x, *args, **kwargs):
    kwargs = {key: move(value) for key, value in kwargs.items()}
    x = tf.transpose(x, [0, 2, 3, 1])
    y = function(x, *map(move, args), **{**kwargs, "data_format": "NHWC"})
    return tf.transpose(y, [0, 3, 1, 2])
  return call

for name in "avg_pool", "bias_add", "conv2d", "conv2d_transpose", "max_pool":
  setattr(tf.nn, name, move_channels(getattr(tf.nn, name)))
"""
# The project is configured in its source, which has float16 for the networks of
# ProGAN. The loss scales begin at 2**64, and no file has a copy of them.
_TRAIN = (
  MOVE_CHANNELS
  + """
import sys
import dnnlib
import dnnlib.tflib as tflib
import train

images, resume = float(sys.argv[1]), sys.argv[2:]
sizes = dict(dtype="float16", fmap_base=64, fmap_max=16)
networks, losses = "training.networks_progan.", "training.loss."
train.G = dnnlib.EasyDict(func_name=networks + "G_paper", **sizes)
train.G.pixelnorm_epsilon = 1e-4
train.D = dnnlib.EasyDict(func_name=networks + "D_paper", **sizes)
train.G_loss = dnnlib.EasyDict(func_name=losses + "G_wgan")
train.D_loss = dnnlib.EasyDict(func_name=losses + "D_wgan_gp")
train.G_opt.use_loss_scaling = train.D_opt.use_loss_scaling = True
train.dataset.update(tfrecord_dir="noise")
train.grid.size = "one"
train.metrics = []
train.sched.update(minibatch_base=4, minibatch_dict={})
train.submit_config.num_gpus = 1
train.tf_config["allow_soft_placement"] = True
train.train.update(total_kimg=images / 1000)
if resume:
  train.train.update(resume_run_id=resume[0])
train.main()
for variable in tf.global_variables():
  if "loss_scaling_var" in variable.name:
    print("the loss scale is 2**%g" % tflib.run(variable))
"""
)


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes what a user edits in `train.py`, and noise in both resolutions."""
  (repo / "start.py").write_text(_TRAIN)
  random = np.random.RandomState(1)
  folder = work / "datasets" / "noise"
  folder.mkdir(parents=True)
  for log2 in (2, 3):
    shape = (3, 2**log2, 2**log2)
    path = str(folder / f"noise-r{log2:02}.tfrecords")
    with tf.io.TFRecordWriter(path) as writer:
      for _ in range(16):
        data = random.randint(0, 256, shape).astype(np.uint8).tobytes()
        features = {
          "shape": tf.train.Feature(int64_list=tf.train.Int64List(value=shape)),
          "data": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        writer.write(example.SerializeToString())


PROGRAM = Program(
  name="stylegan",
  repository="NVlabs/stylegan",
  commit="1e0d5c781384ef12b50ef20a62fee5d78b38e88f",
  title="train.py",
  folder=None,
  path=(".",),
  needs={"PIL": "pillow", "requests": "requests"},
  start=(("{repo}/start.py", "240"),),
  resume=(("{repo}/start.py", "240", "0"),),
  checkpoint=None,
  prepare=prepare,
  prints=r"the loss scale is 2\*\*[123]\d\b",
  scale="two loss scales of its own fall from 2^64; it saves weights alone",
  remark="ProGAN in float16, as the source has it, which StyleGAN's generator "
  "does not take; a program of ours sets that, and moves channels for a CPU",
)
