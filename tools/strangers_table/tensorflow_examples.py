# SPDX-License-Identifier: Apache-2.0
"""TensorFlow-Examples: tutorials, which have all their settings within."""

import pathlib
import re

from strangers_table import _switch
from strangers_table import Program

_FOLDER = "tensorflow_v1/examples"


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Lets the programs train for few steps, and write below their folder."""
  del work
  for path in (repo / _FOLDER).rglob("*.py"):
    text = path.read_text("utf-8").replace("/tmp/", "./")
    text = re.sub(
      r"^(training_steps|num_steps) = \d+", r"\1 = 400", text, flags=re.M
    )
    path.write_text(text, "utf-8")


def _make(name: str, title: str, **values: str | None) -> Program:
  path = f"{_FOLDER}/{title}"
  return Program(
    name=f"tensorflow-examples-{name}",
    repository="aymericdamien/TensorFlow-Examples",
    commit="6dcbe14649163814e72a22a999f20c5e247ce988",
    paths=(_FOLDER,),
    title=path,
    folder=None,
    start=((f"{{repo}}/{path}",),),
    prepare=prepare,
    **_switch.ON,
    remark=_switch.REMARK,
    **values,
  )


PROGRAMS = (
  _make(
    "rnn",
    "3_NeuralNetworks/dynamic_rnn.py",
    checkpoint=None,
    prints=r"Testing Accuracy: [\d.]+",
    scale="the program saves nothing",
  ),
)
