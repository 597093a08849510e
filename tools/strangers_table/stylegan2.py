# SPDX-License-Identifier: Apache-2.0
"""StyleGAN2, with the reference implementations of its own ops."""

import pathlib

from strangers_table import _switch
from strangers_table import Program
from strangers_table import stylegan

# The project sets sizes in its source, and has its ops for a GPU by default.
_TRAIN = (
  stylegan.MOVE_CHANNELS
  + """
import glob
import dnnlib
import run_training
from dnnlib.tflib.ops import fused_bias_act, upfirdn_2d

for module in (fused_bias_act, upfirdn_2d):
  for value in vars(module).values():
    if getattr(value, "__module__", "") == module.__name__:
      value.__defaults__ = tuple(
          "ref" if x == "cuda" else x for x in value.__defaults__ or ())

submit = dnnlib.submit_run
made = sorted(glob.glob("results/*/network-final.pkl"))

def start(G_args, D_args, sched_args, grid_args, **kwargs):
  for network in (G_args, D_args):
    network.update(fmap_base=64, fmap_max=16)
  G_args.update(fused_modconv=False, latent_size=16, dlatent_size=16)
  sched_args.update(minibatch_size_base=4)
  grid_args.update(size="1080p")
  kwargs["tf_config"]["allow_soft_placement"] = True
  if made:
    kwargs.update(resume_pkl=made[-1])
  submit(G_args=G_args, D_args=D_args, sched_args=sched_args,
         grid_args=grid_args, **kwargs)

dnnlib.submit_run = start
run_training.run("noise", "datasets", "results", "config-f", 1, 0.032, None,
                 False, [])
"""
)


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes what sets sizes, and noise in both resolutions."""
  stylegan.prepare(repo, work)
  (repo / "start.py").write_text(_TRAIN)


PROGRAM = Program(
  name="stylegan2",
  repository="NVlabs/stylegan2",
  commit="bf0fe0baba9fc7039eae0cac575c1778be1ce3e3",
  title="run_training.py",
  folder=None,
  path=(".",),
  needs={"PIL": "pillow", "requests": "requests"},
  start=(("{repo}/start.py",),),
  checkpoint=None,
  prepare=prepare,
  environment=_switch.SWITCH["environment"],
  migrate=_switch.SWITCH["migrate"],
  prints=r"tick \d+ +kimg",
  scale="it saves weights alone",
  remark=f"{_switch.REMARK}; a program of ours sets sizes, and moves channels "
  "for a CPU",
  timeout=500,
)
