# SPDX-License-Identifier: Apache-2.0
"""Sonnet 1's examples: one of automatic mixed precision, and an LSTM."""

import bz2
import pathlib
import subprocess
import sys

from strangers_table import _mnist
from strangers_table import _switch
from strangers_table import LOSS
from strangers_table import Program


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Makes what the project's build makes, and what gives a program noise."""
  _mnist.prepare(repo, work)
  protoc = (sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.")
  subprocess.run([*protoc, "sonnet/protos/module.proto"], cwd=repo, check=True)
  for path in (repo / "sonnet/examples/data").glob("*.bz2"):
    path.with_suffix("").write_bytes(bz2.decompress(path.read_bytes()))


def _make(name: str, title: str, **values: object) -> Program:
  return Program(
    name=f"sonnet-{name}",
    repository="deepmind/sonnet",
    commit="cd5b5fa48e15e4d020f744968f5209949ebe750f",
    paths=(":(glob)sonnet/**/*.py", "sonnet/examples/data", "sonnet/protos"),
    title=f"sonnet/examples/{title}",
    needs={
      "contextlib2": "contextlib2",
      "grpc_tools": "grpcio-tools",
      "semantic_version": "semantic_version",
      "tensorflow_probability": "tensorflow_probability",
    },
    prepare=prepare,
    **values,
  )


def _write_like_shakespeare(steps: int) -> tuple[str, ...]:
  return (
    *("sonnet/examples/rnn_shakespeare.py", "--checkpoint_dir={work}/model"),
    *(f"--num_training_iterations={steps}", "--lstm_depth=1", "--batch_size=4"),
    *("--num_hidden=16", "--truncation_length=16", "--sample_length=5"),
  )


PROGRAMS = (
  _make(
    "mnist",
    "mnist_mlp.py --gpu_auto_mixed_precision",
    start=(
      (
        *("start.py", "0", "sonnet/examples/mnist_mlp.py"),
        *("--num_train_steps=21", "--test_batch_size=32"),
        *("--train_batch_size=32", "--learning_rate=0.01"),
        "--gpu_auto_mixed_precision",
      ),
    ),
    checkpoint=None,
    loss=LOSS,
    prints=r"Step: +21 of 21",
    scale="the program saves nothing",
    remark="version 1.36; noise in place of MNIST",
  ),
  _make(
    "shakespeare",
    "rnn_shakespeare.py",
    start=(_write_like_shakespeare(10),),
    resume=(_write_like_shakespeare(20),),
    checkpoint="{work}/model",
    **_switch.SWITCH,
    remark=f"version 1.36, with {_switch.REMARK}",
    bypass=_switch.UNSCALED,
  ),
)
