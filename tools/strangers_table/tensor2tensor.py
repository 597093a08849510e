# SPDX-License-Identifier: Apache-2.0
"""tensor2tensor: a Transformer by `tf.contrib.learn`'s monitors."""

import pathlib

from strangers_table import LOSS
from strangers_table import Program


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Makes the folders that the program expects."""
  del repo
  for name in ("data", "tmp"):
    (work / name).mkdir()


def _command(steps: int) -> tuple[str, ...]:
  return (
    *("tensor2tensor/bin/t2t-trainer", "--generate_data"),
    *("--problem=algorithmic_reverse_binary40", "--model=transformer"),
    *("--hparams_set=transformer_tiny", "--data_dir={work}/data"),
    *("--tmp_dir={work}/tmp", "--output_dir={work}/model", "--eval_steps=1"),
    *(f"--train_steps={steps}", "--local_eval_frequency=10"),
    *("--gpu_automatic_mixed_precision", "--random_seed=1"),
    "--hparams=batch_size=64,learning_rate_warmup_steps=4",
  )


PROGRAM = Program(
  name="tensor2tensor",
  repository="tensorflow/tensor2tensor",
  commit="bafdc1b67730430d38d6ab802cbd51f9d053ba2e",
  paths=(":(glob)tensor2tensor/**/*.py", "tensor2tensor/bin/t2t-trainer"),
  title="t2t-trainer --gpu_automatic_mixed_precision",
  importable=(
    *("bz2file", "cloudpickle", "cv2", "dopamine", "googleapiclient", "gym"),
    *("kfac", "matplotlib", "mesh_tensorflow", "oauth2client", "png", "sympy"),
    *(
      "tensorflow_datasets",
      "tensorflow_gan",
      "tensorflow_probability",
      "tqdm",
    ),
  ),
  needs={
    "PIL": "pillow",
    "requests": "requests",
    "scipy": "scipy",
    "six": "six",
    "tensorboard": "tensorboard",
    "tensorflow_estimator": "tensorflow-estimator==2.15.*",
    "tf_slim": "tf-slim",
  },
  start=(_command(10),),
  resume=(_command(20),),
  checkpoint="{work}/model",
  prepare=prepare,
  loss=LOSS,
  settings={r"(^|/)good_steps$": 1995},
  initial=2.0**15,
  unseeded=True,
  remark="`transformer_tiny` on reversed binary numbers; its batches differ "
  "from run to run, also with `--random_seed`",
  timeout=900,
)
