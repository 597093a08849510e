# SPDX-License-Identifier: Apache-2.0
"""The table of `make strangers`: a module of this package for each program.

A module has `PROGRAM`, a `Program`, or `PROGRAMS`, a tuple of them. Nothing of
the programs is here but their address, and how they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import importlib
import pathlib
import pkgutil

Command = tuple[str, ...]
# A loss as Estimators, their hooks and most programs print it.
LOSS = (
  r"(?i)loss[\w:]*(?: for final step)?'?(?: ?=|:)? '?"
  r"(-?\d+\.\d+(?:e[-+]\d+)?|nan|inf)"
)


@dataclasses.dataclass(frozen=True)
class Program:
  """A program of a public repository, and how it is tried.

  In the commands and in `environment`, `{repo}` is the unpacked repository, and
  `{work}` is a folder for data and results.

  Attributes:
    name: The name for `--only`.
    repository: Owner and name.
    commit: The commit, in 40 hexadecimal digits.
    start: The commands that train and save, each what follows `python`.
    resume: The commands that go on; those of `start` if empty.
    checkpoint: The folder or prefix of the checkpoint, as `{work}/model`.
    title: The program's path, for the table.
    folder: The folder of the repository in which the commands run, and which is
      on the path of modules; None for `{work}`.
    path: Further folders of the repository for the path of modules.
    paths: The files and folders of the repository to unpack; all if empty.
    stand_ins: The modules of `stand_ins/` that the program gets.
    importable: Modules that the program imports and does not use.
    needs: Modules from PyPI, or `module:attribute` -> what pip installs.
    prepare: Writes data. Its arguments are the repository's folder and the
      folder for data.
    environment: Further environment variables.
    settings: Pattern of variables' names -> value that the runner writes into
      the checkpoint before the program resumes, if the loss scale has not moved
      by itself then, so that it moves.
    initial: The loss scale that the program begins with, if a scale that is
      another one after the start has moved already.
    loss: A pattern of the loss in what the program prints, such as LOSS; the
      last one counts. The name of its group, if any, names another measure.
    float32: Why the program is not tried with the graph rewrite on the CPU.
    prints: A pattern that the start, the resumed run and the migrated program
      must print.
    scale: Why no loss scale moves, if none does.
    bypass: How the program bypasses its loss scale, if it does. The runner
      fails a stage without the warning then, and with the warning else.
    run: Further arguments for `tf-lossscale run`.
    migrate: Further arguments for `tf-lossscale migrate`.
    unseeded: Whether the program takes another seed in each run, so that its
      loss scales differ.
    remark: What a reader of the table must know.
    timeout: The seconds that a command may take.
  """

  name: str
  repository: str
  commit: str
  title: str
  start: tuple[Command, ...]
  checkpoint: str | None
  resume: tuple[Command, ...] = ()
  folder: str | None = "."
  path: tuple[str, ...] = ()
  paths: tuple[str, ...] = ()
  stand_ins: tuple[str, ...] = ()
  importable: tuple[str, ...] = ()
  needs: Mapping[str, str] = dataclasses.field(default_factory=dict)
  prepare: Callable[[pathlib.Path, pathlib.Path], None] | None = None
  environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
  settings: Mapping[str, float] = dataclasses.field(default_factory=dict)
  initial: float | None = None
  loss: str = ""
  float32: str = ""
  prints: str = ""
  scale: str = ""
  bypass: str = ""
  run: tuple[str, ...] = ()
  migrate: tuple[str, ...] = ()
  unseeded: bool = False
  remark: str = ""
  timeout: float = 300


def read_table() -> tuple[Program, ...]:
  """Returns the programs of all modules of the table, sorted by name."""
  programs: list[Program] = []
  for module in pkgutil.iter_modules(__path__):
    if module.name.startswith("_") or module.ispkg:
      continue
    found = importlib.import_module(f"{__name__}.{module.name}")
    programs += getattr(found, "PROGRAMS", None) or (found.PROGRAM,)
  return tuple(sorted(programs, key=lambda program: program.name))
