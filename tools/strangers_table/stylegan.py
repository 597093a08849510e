# SPDX-License-Identifier: Apache-2.0
"""StyleGAN's training in float16, with the loss scaling of its optimizer."""

import pathlib

from strangers_table import Program

# `train.py` is edited by hand for each run, so that this stands for it.
_DRIVER = """
import sys
from dnnlib import EasyDict
from training import training_loop

work = sys.argv[1]
network = {"dtype": "float16", "fmap_base": 64, "fmap_max": 8}
optimizer = {"use_loss_scaling": True, "beta1": 0.0, "beta2": 0.99}
training_loop.training_loop(
  EasyDict(num_gpus=1, run_dir=work, run_dir_root=work, run_id=0,
           run_desc="fp16", task_name="fp16", host_name="localhost"),
  G_args={"func_name": "training.networks_progan.G_paper", "latent_size": 8,
          "pixelnorm_epsilon": 1e-4, **network},
  D_args={"func_name": "training.networks_progan.D_paper", **network},
  G_opt_args=optimizer, D_opt_args=optimizer,
  G_loss_args={"func_name": "training.loss.G_wgan"},
  D_loss_args={"func_name": "training.loss.D_wgan_gp"},
  dataset_args={"class_name": "training.dataset.SyntheticDataset",
                "resolution": 8},
  sched_args={"minibatch_base": 4, "lod_initial_resolution": 8},
  grid_args={"size": "1080p", "layout": "random"},
  tf_config={"allow_soft_placement": True}, total_kimg=1)
"""


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes the program that trains on synthetic images of 8 x 8."""
  del work
  (repo / "fp16_training.py").write_text(_DRIVER)


PROGRAM = Program(
  name="stylegan",
  repository="NVlabs/stylegan",
  commit="1e0d5c781384ef12b50ef20a62fee5d78b38e88f",
  title="training/training_loop.py, use_loss_scaling",
  needs={"PIL": "pillow", "requests": "requests", "tensorboard": "tensorboard"},
  start=(("fp16_training.py", "{work}"),),
  checkpoint=None,
  prepare=prepare,
  scale="its optimizer has a loss scaling of its own",
  remark="trains on a GPU alone: its convolutions are NCHW",
)
