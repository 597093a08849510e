# SPDX-License-Identifier: Apache-2.0
"""Horovod's MNIST examples, with a session and with an Estimator."""

from strangers_table import _mnist
from strangers_table import Program


def _make(kind: str, title: str, folder: str) -> Program:
  return Program(
    name=f"horovod-{kind}",
    repository="horovod/horovod",
    commit="b52e4b3e6ce5b1b494b77052878a0aad05c2e3ce",
    paths=("examples",),
    folder=None,
    path=(".",),
    title=title,
    stand_ins=("horovod",),
    start=(("{repo}/start.py", "10", f"{{repo}}/{title}"),),
    resume=(("{repo}/start.py", "20", f"{{repo}}/{title}"),),
    checkpoint=f"{{work}}/{folder}",
    prepare=_mnist.prepare,
    scale="no loss scale: it trains in float32",
    remark="version 0.19.5; noise in place of MNIST",
  )


PROGRAMS = (
  _make("mnist", "examples/tensorflow_mnist.py", "checkpoints"),
  _make(
    "estimator", "examples/tensorflow_mnist_estimator.py", "mnist_convnet_model"
  ),
)
