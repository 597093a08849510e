# SPDX-License-Identifier: Apache-2.0
"""OpenAI's baselines: PPO, whose weights joblib writes."""

from strangers_table import _switch
from strangers_table import Program

_COMMAND = (
  *("-m", "baselines.run", "--alg=ppo2", "--env=CartPole-v0", "--network=mlp"),
  *("--num_timesteps=2048", "--nsteps=256", "--seed=1"),
  "--save_path={work}/model",
)

PROGRAM = Program(
  name="baselines",
  repository="openai/baselines",
  commit="ea25b9e8b234e6ee1bca43083f8f3cf974143998",
  paths=("baselines",),
  title="baselines.run --alg=ppo2",
  importable=("cv2",),
  needs={
    "cloudpickle": "cloudpickle",
    "gym": "gym==0.15.7",
    "joblib": "joblib",
    "pyglet": "pyglet",
    "scipy": "scipy",
    "tqdm": "tqdm",
  },
  start=(_COMMAND,),
  resume=((*_COMMAND, "--load_path={work}/model"),),
  checkpoint=None,
  **_switch.ON,
  prints=r"loss/value_loss",
  float32="TensorFlow rewrites no graph of an InteractiveSession",
  scale="no file of TensorFlow shows the loss scale",
  remark=_switch.REMARK,
)
