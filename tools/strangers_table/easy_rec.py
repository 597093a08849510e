# SPDX-License-Identifier: Apache-2.0
"""EasyRec: an Estimator with feature columns of its own."""

import pathlib
import random
import subprocess
import sys

from strangers_table import Program

_CONFIG = "examples/configs/deepfm_on_movielens.config"


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Compiles the protocol buffers, and writes noise as ratings of films."""
  protoc = (sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.")
  names = sorted((repo / "easy_rec/python/protos").glob("*.proto"))
  protos = [path.relative_to(repo).as_posix() for path in names]
  subprocess.run([*protoc, *protos], cwd=repo, check=True)
  random.seed(1)
  lines = []
  for _ in range(400):
    gender, age = random.randint(0, 1), random.randint(0, 6)
    film, year = random.randint(1, 5000), random.randint(0, 35)
    row = [gender ^ film % 2, random.randint(1, 9000), film, 3, gender, age]
    row += [random.randint(0, 20), "12345", f"film {film}", "Drama|War", year]
    lines.append("\t".join(map(str, row)))
  (work / "ratings").write_text("\n".join(lines) + "\n")
  text = (repo / _CONFIG).read_text()
  for steps in (10, 20):
    changed = text
    for old, new in (
      ("examples/data/movielens_1m/movies_train_data", "ratings"),
      ("examples/data/movielens_1m/movies_test_data", "ratings"),
      ("examples/ckpt/deepfm_movieslen_ckpt", "model"),
      ("save_checkpoints_steps: 100", "save_checkpoints_steps: 10"),
      ("num_steps: 2500", f"num_steps: {steps}"),
      ("batch_size: 1024", "batch_size: 8"),
    ):
      changed = changed.replace(old, new)
    (work / f"{steps}.config").write_text(changed)


_COMMAND = ("-m", "easy_rec.python.train_eval", "--pipeline_config_path")

PROGRAM = Program(
  name="easy_rec",
  repository="alibaba/EasyRec",
  commit="bd230cb1a3eeb1112f35597aede4c23880804d88",
  paths=(
    *(":(glob)easy_rec/**/*.py", ":(glob)easy_rec/**/*.proto"),
    _CONFIG,
  ),
  title="easy_rec.python.train_eval",
  folder=None,
  path=(".",),
  importable=("oss2", "tensorflow_probability"),
  needs={
    "future": "future",
    "grpc_tools": "grpcio-tools",
    "matplotlib": "matplotlib",
    "pandas": "pandas",
    "psutil": "psutil",
    "six": "six",
    "sklearn": "scikit-learn",
    "tensorflow_estimator": "tensorflow-estimator==2.15.*",
  },
  start=((*_COMMAND, "{work}/10.config"),),
  resume=((*_COMMAND, "{work}/20.config", "--continue_train"),),
  checkpoint="{work}/model",
  prepare=prepare,
  scale="no loss scale: it trains in float32",
)
