# SPDX-License-Identifier: Apache-2.0
"""Tries programs of public repositories, which are on this disk, on TensorFlow.

  STRANGERS=FOLDER python tools/strangers.py [--only NAME] [--list] [--page]

Each program of `strangers_table/` starts under `tf-lossscale run` and saves,
goes on from its checkpoint, and starts once more in plain Python after
`migrate --write` in a copy. Nothing is downloaded: FOLDER has a clone of each
repository, as OWNER/NAME, OWNER+NAME or NAME, with or without work tree.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import datetime
import importlib
import importlib.metadata
import importlib.util
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).absolute().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import strangers_table  # noqa: E402
from strangers_table import Program  # noqa: E402

from tf_compat_lossscale import checkpoint  # noqa: E402

STAND_INS = ROOT / "tools" / "strangers_table" / "stand_ins"
PAGE = ROOT / "docs" / "public-programs.md"
BEGIN = (
  "<!-- strangers: `make strangers ARGS=--page` writes the rows from here -->"
)
END = "<!-- strangers: to here -->"
# What this package says if a program bypasses its loss scale.
_BYPASS = "apply_gradients: compute_gradients was not called"
_STAGES = ("starts", "resumes", "migrated", "float16")
_BREAK = "<br>"  # Between the lines of a program's details.
_NOTHING = "nothing to migrate"
# What `run --float16-on-cpu` says of a session with ops in float16.
_CONVERTED = re.compile(
  r"tf-lossscale: float16: (([1-9]\d*) of .* casts)$", re.M
)
# Starts a migrated program in plain Python, with the rewrite on CPUs.
_PLAIN = """
import runpy, sys
import tf_compat_lossscale as tfl
from tf_compat_lossscale.programs import import_hooks
import_hooks.when_imported(
  "tensorflow", lambda _: tfl.graph_rewrite.enable_on_cpu())
_, program, *rest = sys.argv
if program == "-m":
  sys.argv = rest
  runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
else:
  sys.argv, sys.path[0] = [program, *rest], program.rpartition("/")[0] or "."
  runpy.run_path(program, run_name="__main__")
"""
# Writes values into a checkpoint: argv has its prefix, then pattern=value.
_SET = """
import re, sys
import numpy as np
import tensorflow as tf
prefix, *settings = sys.argv[1:]
reader = tf.train.load_checkpoint(prefix)
names = sorted(reader.get_variable_to_shape_map())
values = {name: reader.get_tensor(name) for name in names}
for setting in settings:
  pattern, _, value = setting.rpartition("=")
  found = [name for name in names if re.search(pattern, name)]
  if not found:
    sys.exit(f"no variable of the checkpoint has {pattern!r} in its name")
  for name in found:
    values[name] = np.full_like(values[name], float(value))
tf.raw_ops.SaveV2(
  prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names),
  tensors=[values[name] for name in names])
"""


class StageError(Exception):
  """A stage failed; the message is the reason, in one line."""


class MistakeError(Exception):
  """The caller made a mistake."""


@dataclasses.dataclass
class Row:
  """What a program did: for each stage its state, or why it failed."""

  program: Program
  start: str = ""
  resume: str = ""
  migrated: str = ""
  converted: str = ""
  filled: bool = False
  works: bool = False
  was_tried: bool = True

  def format(self, release: str, date: str) -> str:
    """Returns the row of the table of details."""
    program = self.program
    more = [program.scale, program.bypass]
    if self.filled:
      more[0] = "the runner sets the counter before the program resumes"
    texts = (self.start, self.resume, self.migrated, self.converted)
    lines = (
      f"TensorFlow {release}, {date}, commit {program.commit[:12]}",
      *(f"{k}: {shorten_paths(v)}" for k, v in zip(_STAGES, texts) if v),
      "; ".join(filter(None, (program.remark, program.float32, *more))),
    )
    details = _BREAK.join(filter(None, lines)).replace("|", "/")
    return f"| {program.repository}, `{program.title}` | {details} |"


def shorten_paths(text: str) -> str:
  """Returns a text whose absolute paths are file names: the row is public."""
  return re.sub(r"(?<![\w.])/[^\s:'\"]+/", "", text)


def find_clone(folder: pathlib.Path, repository: str) -> pathlib.Path | None:
  """Returns the git directory of a repository's clone, or None."""
  owner, name = repository.split("/")
  for place in (f"{owner}/{name}", f"{owner}+{name}", name, f"{name}.git"):
    for inner in ("", ".git", "repo", "repo/.git"):
      path = folder / place / inner
      if (path / "HEAD").is_file() and (path / "objects").is_dir():
        return path
  return None


def unpack(clone: pathlib.Path, program: Program, into: pathlib.Path) -> None:
  """Unpacks a program's commit from a clone, which git does not complete.

  Raises:
    StageError: The clone does not have the commit, or some of the files.
  """
  into.mkdir(parents=True)
  git = ("git", f"--git-dir={clone}")
  environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
  with tempfile.TemporaryFile() as archive:
    done = subprocess.run(
      [*git, "archive", "--format=tar", program.commit, *program.paths],
      env=environment,
      stdout=archive,
      stderr=subprocess.PIPE,
      text=True,
    )
    if done.returncode:
      said = done.stderr.strip().splitlines() or [""]
      raise StageError(
        f"git cannot unpack the commit {program.commit[:12]}: {said[0][:100]}"
      )
    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
      tar.extractall(into, filter="data")


def find_missing(program: Program) -> list[str]:
  """Returns what pip has to install for a program."""
  missing = []
  for place, requirement in program.needs.items():
    name, _, attribute = place.partition(":")
    try:
      is_there = importlib.util.find_spec(name) is not None
    except ImportError:
      is_there = False
    if is_there and attribute:
      is_there = hasattr(importlib.import_module(name), attribute)
    if not is_there:
      missing.append(requirement)
  return missing


def run_command(
  command: Sequence[str],
  folder: pathlib.Path,
  environment: Mapping[str, str],
  log: pathlib.Path,
  timeout: float,
) -> None:
  """Runs a command with its output in a log; ends its whole group in time.

  Raises:
    StageError: The command failed, or took too long.
  """
  with log.open("ab") as output:
    output.write(f"$ {' '.join(command)}\n".encode())
    output.flush()
    process = subprocess.Popen(
      command,
      cwd=folder,
      env=environment,
      stdin=subprocess.DEVNULL,
      stdout=output,
      stderr=subprocess.STDOUT,
      start_new_session=True,
    )
    try:
      status = process.wait(timeout)
    except subprocess.TimeoutExpired:
      raise StageError(f"not done after {timeout:g} s") from None
    finally:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
      process.wait()
  if status:
    raise StageError(find_reason(log.read_text("utf-8", "replace"), status))


def find_reason(text: str, status: int) -> str:
  """Returns the line of an output that says best why a command failed."""
  lines = [line.strip() for line in text.splitlines() if line.strip()]
  errors = [
    line
    for line in lines
    if re.match(r"([\w.]*\.)?\w*(Error|Exception): ", line)
  ]
  reason = (errors or lines or [""])[-1]
  return f"exit {status}: {reason[:160]}"


def format_scale(value: float) -> str:
  """Returns a loss scale as text; a large power of two as one."""
  mantissa, exponent = math.frexp(value)
  if mantissa == 0.5 and exponent > 20:
    return f"2^{exponent - 1}"
  return f"{value:g}"


def describe(path: str) -> str:
  """Returns the step and the loss scales of a checkpoint, in a few words.

  Raises:
    StageError: There is no checkpoint that can be read.
  """
  try:
    found = checkpoint.describe(path)
  except (checkpoint.CheckpointError, OSError) as error:
    raise StageError(f"no checkpoint: {str(error)[:120]}") from None
  words = [] if found.step is None else [f"step {found.step}"]
  for state in found.loss_scales:
    good = state.good_steps
    words.append(
      f"scale {format_scale(state.value)}"
      + ("" if good is None else f" ({good} good)")
    )
  return ", ".join(words) or "saves"


@dataclasses.dataclass
class Trial:
  """A program's trial, in a folder of its own."""

  program: Program
  clone: pathlib.Path
  folder: pathlib.Path

  def run_stage(
    self,
    name: str,
    commands: Sequence[Sequence[str]],
    prefix: Sequence[str],
    repo: str = "repo",
    work_folder: str = "work",
  ) -> str:
    """Runs the commands of a stage, with its log `NAME.log`; returns the log.

    Args:
      name: The stage.
      commands: What follows `python PREFIX…`.
      prefix: Python's arguments before the command's.
      repo: The folder of the repository.
      work_folder: The folder for data and results.
    """
    program = self.program
    work = self.folder / work_folder
    places = {"{repo}": str(self.folder / repo), "{work}": str(work)}

    def fill(text: str) -> str:
      for key, value in places.items():
        text = text.replace(key, value)
      return text

    folder = work
    path = [str(self.folder / "stand_ins")]
    if program.folder is not None:
      folder = self.folder / repo / program.folder
      path.append(str(folder))
    path += (str(self.folder / repo / folder) for folder in program.path)
    path.append(str(ROOT))
    home = self.folder / "home"
    home.mkdir(exist_ok=True)
    environment = {
      **os.environ,
      "CUDA_VISIBLE_DEVICES": "",
      "HOME": str(home),
      "PYTHONPATH": os.pathsep.join(path),
      "TF_CPP_MIN_LOG_LEVEL": "2",
      "TF_ENABLE_ONEDNN_OPTS": "0",  # As run --float16-on-cpu has it.
      **{key: fill(value) for key, value in program.environment.items()},
    }
    log = self.folder / f"{name}.log"
    for command in commands:
      arguments = [sys.executable, *prefix, *map(fill, command)]
      run_command(arguments, folder, environment, log, program.timeout)
    printed = log.read_text("utf-8", "replace")
    if program.prints and not re.search(program.prints, printed):
      raise StageError(f"does not print {program.prints!r}")
    if (_BYPASS in printed) != bool(program.bypass):
      kind = "no warning" if program.bypass else "false alarm"
      raise StageError(f"{kind} that the loss scale is bypassed")
    return printed

  def compare(self, log: str, run: Sequence[str]) -> str:
    """Returns what a start converted, and its loss beside that of float32.

    Args:
      log: What the start printed.
      run: The command to run the program in float32, once more.
    """
    program, lines = self.program, _CONVERTED.findall(log)
    if not lines:
      return ""
    converted = max(lines, key=lambda line: int(line[1]))[0]
    if not program.loss:
      return converted
    whole = self.run_stage(
      *("float32", program.start, run, "repo", "float32_work")
    )
    losses = [re.findall(program.loss, text)[-1:] for text in (log, whole)]
    last, other = (f"{float(x[0]):.4g}" if x else "?" for x in losses)
    measure = next(iter(re.compile(program.loss).groupindex), "loss")
    return f"{converted}; {measure} {last}, in float32 {other}"

  def read_state(self, work: str) -> str:
    """Returns the state in the checkpoint of a folder."""
    path = self.program.checkpoint
    if path is None:
      return "runs"
    return describe(path.replace("{work}", str(self.folder / work)))

  def prepare(self) -> None:
    """Unpacks the repository, writes data, and puts stand-ins in place."""
    unpack(self.clone, self.program, self.folder / "repo")
    (self.folder / "stand_ins").mkdir()
    for name in self.program.stand_ins:
      source = STAND_INS / name
      if source.is_dir():
        shutil.copytree(source, self.folder / "stand_ins" / name)
      else:
        shutil.copy(source.with_suffix(".py"), self.folder / "stand_ins")
    for name in self.program.importable:
      path = self.folder / "stand_ins" / f"{name}.py"
      shutil.copy(STAND_INS / "only_importable.py", path)
    work = self.folder / "work"
    work.mkdir()
    if self.program.prepare is not None:
      self.program.prepare(self.folder / "repo", work)
    shutil.copytree(self.folder / "repo", self.folder / "migrated")
    shutil.copytree(work, self.folder / "migrated_work")
    shutil.copytree(work, self.folder / "float32_work")

  def set_counters(self) -> None:
    """Writes the program's settings into its checkpoint."""
    path = str(self.program.checkpoint).replace(
      "{work}", str(self.folder / "work")
    )
    prefix = checkpoint.describe(path).path
    settings = [f"{k}={v}" for k, v in self.program.settings.items()]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    run_command(
      [sys.executable, "-c", _SET, prefix, *settings],
      *(self.folder, environment, self.folder / "set.log", 120),
    )

  def has_moved(self, row: Row) -> bool:
    """Returns whether a loss scale has moved in the stages so far."""
    scales, initial = find_scales(row.start), self.program.initial
    if initial is not None and scales != [format_scale(initial)] * len(scales):
      return True
    return bool(row.resume) and scales != find_scales(row.resume)

  def has_changed(self, row: Row) -> bool:
    """Returns whether the migrated program does not what the program did."""
    states = [row.start, row.migrated]
    if self.program.unseeded:
      states = [re.sub(r"(?<=scale )[^,]+", "", state) for state in states]
    return states[0] != states[1]

  def run(self) -> Row:
    """Returns what the program did in each stage."""
    program, row = self.program, Row(self.program)
    run = ["-m", "tf_compat_lossscale", "run", *program.run]
    half = [] if program.float32 else ["--float16-on-cpu"]
    try:
      self.prepare()
    except StageError as error:
      row.start = f"**{error}**"
      return row
    try:
      log = self.run_stage("start", program.start, [*run, *half])
      row.start = self.read_state("work")
      started = True
      row.converted = self.compare(log, run)
    except StageError as error:
      row.start, started = f"**{error}**", False
    resumed = False
    if started:
      try:
        row.filled = bool(program.settings) and not self.has_moved(row)
        if row.filled:
          self.set_counters()
        commands = program.resume or program.start
        self.run_stage("resume", commands, [*run, *half])
        row.resume = self.read_state("work")
        if not (program.scale or self.has_moved(row)):
          raise StageError(f"the loss scale did not move: {row.resume}")
        resumed = True
      except StageError as error:
        row.resume = f"**{error}**"
    try:
      command = (
        *(sys.executable, "-m", "tf_compat_lossscale", "migrate", "--write"),
        *(*program.migrate, "."),
      )
      run_command(
        command,
        *(self.folder / "migrated", os.environ),
        *(self.folder / "migrate.log", program.timeout),
      )
      if read_sources(self.folder / "repo") == read_sources(
        self.folder / "migrated"
      ):
        row.migrated = _NOTHING
      else:
        plain = ["-c", _PLAIN] if half else []
        self.run_stage(
          *("migrated", program.start, plain, "migrated", "migrated_work")
        )
        row.migrated = self.read_state("migrated_work")
        if started and self.has_changed(row):
          raise StageError(f"differs: {row.migrated}")
      row.works = started and resumed
    except StageError as error:
      row.migrated = f"**{error}**"
    return row


def read_sources(folder: pathlib.Path) -> dict[str, bytes]:
  """Returns the texts of all Python files in a folder, by their paths."""
  return {
    path.relative_to(folder).as_posix(): path.read_bytes()
    for path in folder.rglob("*.py")
    if path.is_file()
  }


def find_scales(state: str) -> list[str]:
  """Returns the loss scales that the words of `describe` name."""
  return re.findall(r"scale ([-+.^\w]+)", state)


def judge(details: str) -> str:
  """Returns in a few words what a program did, by its row's details."""
  words = []
  for stage, said in re.findall(r"<br>(\w+): (.*?)(?=<br>|$)", details):
    if said == _NOTHING:
      words.append(said)
    elif stage in _STAGES:
      words.append(f"**{stage}: fails**" if "**" in said else stage)
  return ", ".join(words)


def merge_rows(page: str, rows: Sequence[str]) -> str:
  """Returns a page with rows added to its tables.

  A row replaces the one of the same program, commit apart, and TensorFlow.

  Raises:
    MistakeError: The page has no place for the tables.
  """
  before, begin, rest = page.partition(BEGIN)
  inside, end, after = rest.partition(END)
  if not begin or not end:
    raise MistakeError(f"the page needs the lines {BEGIN!r} and {END!r}")
  old = [row for row in inside.splitlines() if _BREAK in row]
  merged: dict[tuple[str, str], str] = {}
  for row in (*old, *rows):
    program, details = row.strip("| ").split(" | ")
    merged[program, details.split(",")[0].split()[1]] = details
  verdicts: dict[str, dict[str, list[str]]] = {}
  all_rows = []
  for program, release in sorted(merged, key=lambda x: (x[0].lower(), x[1])):
    details = merged[program, release]
    all_rows.append(f"| {program} | {details} |")
    found = verdicts.setdefault(program, {})
    found.setdefault(judge(details), []).append(release)
  lines = ["| program | verdict, by TensorFlow |", "|---|---|"]
  for program, found in verdicts.items():
    words = (f"{', '.join(r)}: {verdict}" for verdict, r in found.items())
    lines.append(f"| {program} | {'; '.join(words)} |")
  lines += ["", "## Details", "", "| program | what the program did |"]
  lines += ["|---|---|", *all_rows]
  return f"{before}{begin}\n\n" + "\n".join(lines) + f"\n\n{end}{after}"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
  """Returns the parsed command line."""
  parser = argparse.ArgumentParser(
    prog="strangers.py",
    description="Tries programs of public repositories in $STRANGERS, a "
    "folder of clones. The exit status is 1 if a program failed, and 2 for a "
    "mistake.",
  )
  parser.add_argument(
    "--only",
    action="append",
    metavar="NAME",
    help="only the programs of this name, or whose name begins with NAME-",
  )
  parser.add_argument("--list", action="store_true", help="list the programs")
  parser.add_argument(
    "--page", action="store_true", help=f"write the rows into docs/{PAGE.name}"
  )
  parser.add_argument(
    "--keep",
    metavar="FOLDER",
    type=pathlib.Path,
    help="work in this folder, and leave the logs there",
  )
  return parser.parse_args(arguments)


def choose(
  table: Sequence[Program], only: Sequence[str] | None
) -> list[Program]:
  """Returns the programs that `--only` names; all without.

  Raises:
    MistakeError: No program has a name.
  """
  if only is None:
    return list(table)
  chosen = []
  for name in only:
    found = [
      p for p in table if p.name == name or p.name.startswith(f"{name}-")
    ]
    if not found:
      names = ", ".join(program.name for program in table)
      raise MistakeError(f"--only={name}: no program has this name: {names}")
    chosen += found
  return chosen


def try_program(
  program: Program, folder: pathlib.Path, keep: pathlib.Path | None
) -> Row:
  """Returns what a program did."""
  clone = find_clone(folder, program.repository)
  if clone is None:
    return Row(program, start="not on this disk", was_tried=False)
  missing = find_missing(program)
  if missing:
    start = f"needs {', '.join(missing)} from PyPI"
    return Row(program, start=start, was_tried=False)
  if keep is not None:
    place = keep / program.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return Trial(program, clone, place.absolute()).run()
  with tempfile.TemporaryDirectory(prefix="strangers-") as place:
    return Trial(program, clone, pathlib.Path(place)).run()


def main(
  arguments: Sequence[str],
  table: Sequence[Program] | None = None,
  page: pathlib.Path = PAGE,
) -> int:
  """Runs the command; returns its exit status."""
  options = parse_arguments(arguments)
  try:
    chosen = choose(table or strangers_table.read_table(), options.only)
    if options.list:
      for program in chosen:
        print(f"{program.name}: {program.repository}, {program.title}")
      return 0
    place = os.environ.get("STRANGERS")
    if not place:
      raise MistakeError(
        "STRANGERS is not set: set it to a folder with clones of the "
        "repositories, such as STRANGERS=~/clones"
      )
    folder = pathlib.Path(place).expanduser().absolute()
    if not folder.is_dir():
      raise MistakeError(f"STRANGERS={place}: there is no such folder")
    if options.page:
      merge_rows(page.read_text("utf-8"), [])
    release = importlib.metadata.version("tensorflow")
    if not any(find_clone(folder, program.repository) for program in chosen):
      raise MistakeError(
        f"STRANGERS={place}: nothing was tried: clones are expected there, as "
        f"OWNER/NAME, OWNER+NAME or NAME: {chosen[0].repository}, for example"
      )
    failed = False
    for program in chosen:
      began = time.monotonic()
      row = try_program(program, folder, options.keep)
      failed |= row.was_tried and not row.works
      text = row.format(release, datetime.date.today().isoformat())
      print(text, flush=True)
      print(
        f"{program.name}: {time.monotonic() - began:.0f} s", file=sys.stderr
      )
      if options.page and row.was_tried:
        page.write_text(merge_rows(page.read_text("utf-8"), [text]), "utf-8")
    return int(failed)
  except MistakeError as error:
    print(f"strangers.py: {error}", file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    print("strangers.py: interrupted", file=sys.stderr)
    return 130


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
