# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Ranking: an Estimator's head, on the project's own sample."""

from strangers_table import _switch
from strangers_table import Program

_EXAMPLES = "tensorflow_ranking/examples"
_COMMAND = (
  f"{_EXAMPLES}/tf_ranking_libsvm.py",
  *(f"--{x}_path={_EXAMPLES}/data/{x}.txt" for x in ("train", "vali", "test")),
  *("--output_dir={work}/model", "--hidden_layer_dims=16,8"),
)

PROGRAM = Program(
  name="ranking",
  repository="tensorflow/ranking",
  commit="2037fe23b708a93db9a2cebd86c34748a2d22d0d",
  paths=("tensorflow_ranking",),
  title=f"{_EXAMPLES}/tf_ranking_libsvm.py",
  start=((*_COMMAND, "--num_train_steps=10"),),
  resume=((*_COMMAND, "--num_train_steps=20"),),
  checkpoint="{work}/model",
  needs={"six": "six"},
  run=("--tf1",),
  **{**_switch.SWITCH, "migrate": ("--tf1", *_switch.SWITCH["migrate"])},
  remark=f"version 0.2.3, with {_switch.REMARK}; it sets no seed",
)
