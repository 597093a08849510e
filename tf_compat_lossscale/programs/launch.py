# SPDX-License-Identifier: Apache-2.0
"""Runs a program that was written for an older TensorFlow, unchanged.

The program's sources choose its TensorFlow and its Keras, unless the user does.
`python SCRIPT` runs the program, so that its arguments, exit status, signals
and tracebacks are Python's. An environment variable puts `_site/` first on
Python's path. Python imports the `sitecustomize` there before anything else,
and that module loads this package. Python processes that the program starts
inherit the variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import importlib.util
import os
import re
import sys
from typing import NamedTuple
from typing import NoReturn

from tf_compat_lossscale import _requirements
from tf_compat_lossscale._core import installation
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.programs import missing_names
from tf_compat_lossscale.programs import old_keras
from tf_compat_lossscale.programs import program_files
from tf_compat_lossscale.programs import sources
from tf_compat_lossscale.programs import which_tensorflow

_SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_site")

# Windows has `os.execve`, too, but there it starts another process and ends
# this one at once, so that a shell would not wait for the program.
_CAN_REPLACE_PROCESS = os.name == "posix"

# What Keras 3 lacks, and modules that are built on Keras 2. The last lines have
# modules of the package keras alone.
_KERAS_2 = re.compile(
  r"tensorflow\.(compat\.v[12]\.)?(estimator|python\.(estimator|keras))\b"
  r"|(tensorflow\.(compat\.v[12]\.)?)?keras\.((\w+\.)?experimental"
  r"|estimator|backend\.(function|(set_)?learning_phase|placeholder"
  r"|[gs]et_session)|metrics\.(MeanRelativeError|MeanTensor)"
  r"|layers\.(AbstractRNNCell|DenseFeatures|LocallyConnected\dD)"
  r"|models\.model_from_config|utils\.multi_gpu_model)\b"
  r"|keras\.(backend\.tensorflow_backend|engine|objectives"
  r"|layers\.(advanced_activations|convolutional|core|embeddings|merge"
  r"|normalization|recurrent|wrappers)"
  r"|utils\.(generic_utils|np_utils|training_utils|vis_utils))\b"
)
# Methods of Keras 2's loss-scale optimizer and models that Keras 3 lacks.
_METHODS_OF_KERAS_2 = (
  "get_scaled_loss",
  "get_unscaled_gradients",
  "predict_classes",
)
_TENSORFLOW = re.compile(r"tensorflow(\.|$)")
# Keras, and what TensorFlow 2 implements by Keras.
KERAS = re.compile(
  r"tensorflow\.(compat\.v[12]\.)?(python\.)?(keras|layers|nn\.rnn_cell)\b"
)
_MOST_NAMES = 12  # Of `explain`.


class RunError(Exception):
  """An error for a program that cannot be run; the message is one line."""


class Choice(NamedTuple):
  """The TensorFlow and the Keras that a program runs on.

  Before `choose` has decided, None is what the user leaves to the program's
  sources.

  Attributes:
    tensorflow: 1 or 2: the TensorFlow that `import tensorflow` gives.
    keras: 2 or 3: the Keras that `tf.keras` is; None to leave it as it is.
    optimizers: "legacy" or "new": the classes that `tf.keras.optimizers` has;
      None to leave them as they are.
    decision: The decision about TensorFlow; None if nothing was to decide,
      because the user chose or the program does not use TensorFlow.
    keras_name: The name that asks for Keras 2, and where it is; "" if there is
      none.
  """

  tensorflow: int | None = None
  keras: int | None = None
  optimizers: str | None = None
  decision: which_tensorflow.Decision | None = None
  keras_name: str = ""

  def __str__(self) -> str:
    keras = f" --keras{self.keras}" if self.keras else ""
    return f"--tf{self.tensorflow}{keras}"

  def describe(self) -> str:
    """Returns what the program's source says, in a line."""
    assert self.decision is not None
    signs = self.decision.signs
    why = signs[0] if signs else "no name in it tells; --tf1 if it is older"
    return f"TensorFlow {self.tensorflow} code ({why})"


def run(
  program: Sequence[str], options: Choice, quiet: bool = False
) -> NoReturn:
  """Runs `python PROGRAM…` with the legacy names, in place of this process.

  Args:
    program: SCRIPT, -m MODULE or -c CODE, and the program's arguments.
    options: What the user chose.
    quiet: Whether to print no line about the choice.

  Raises:
    RunError: The program cannot be run as asked.
  """
  _check(program)
  if sys.flags.ignore_environment or sys.flags.no_site:
    raise RunError(
      "run sets environment variables, which Python's options -E, -I and -S "
      "ignore: run without these options"
    )
  env = _decide_environment(program, options, quiet)
  # A `sitecustomize` may have printed something. Windows has programs without
  # these streams.
  for stream in filter(None, (sys.stdout, sys.stderr)):
    stream.flush()
  flags = _find_interpreter_flags(sys.orig_argv)
  command = [sys.executable, *flags, *program]
  if _CAN_REPLACE_PROCESS:
    os.execve(command[0], command, env)
  import signal
  import subprocess

  # The console sends Ctrl-C to both processes: the program decides.
  signal.signal(signal.SIGINT, lambda *_: None)
  sys.exit(subprocess.call(command, env=env))


def explain(program: Sequence[str], options: Choice) -> str:
  """Returns what `run` would do with a program, and why; runs nothing.

  The arguments and the error are those of `run`. A program that cannot be read
  is an error, too.
  """
  _check(program)
  read = program_files.read_program(program)
  if not read.levels:
    raise RunError(read.errors[-1])
  choice = choose(read, options)
  lines = [f"{' '.join(program)}: run with {choice}"]
  lines += _explain_choice(choice)
  lines += [f"not read: {read.python_2}"] if read.python_2 else []
  lines += _explain_missing(read.list_sources(), choice.tensorflow)
  return "\n".join(lines)


def _check(program: Sequence[str]) -> None:
  """Checks that there is a TensorFlow, and that the program is no notebook."""
  if program[0].endswith(".ipynb"):
    raise RunError(
      f"{program[0]} is a notebook: run `tf-lossscale migrate --write "
      f"{program[0]}` once, or execute it by `tf-lossscale run --tf1 -m "
      f"nbconvert --to notebook --execute {program[0]}`"
    )
  if importlib.util.find_spec("tensorflow") is None:
    raise RunError(_requirements.MISSING)


def decide_in_process() -> None:
  """Decides for this process, which a program under `run` has started.

  The environment variables change for this process and those that it starts.

  Raises:
    RunError: The Keras that the process needs is not installed.
  """
  flags = _find_interpreter_flags(sys.orig_argv)
  program = sys.orig_argv[1 + len(flags) :]
  if program and program[0] != "-" and not program[0].startswith("-c"):
    if program[0].startswith("-m"):
      program = ["-m", *filter(None, [program[0][2:]]), *program[1:]]
    quiet = os.environ.get(legacy_names.QUIET) == "1"
    os.environ.update(_decide_environment(program, Choice(), quiet))


def say_undecided() -> None:
  """Says that TensorFlow is imported, though no file that was read does so."""
  if os.environ.get(legacy_names.QUIET) != "1":
    print(
      "tf-lossscale: no file that run has read uses TensorFlow, and now it is "
      "imported: it is TensorFlow 2; --tf1 if the program is older",
      file=sys.stderr,
    )


def _decide_environment(
  program: Sequence[str], options: Choice, quiet: bool
) -> dict[str, str]:
  """Returns the environment for a program; says what was decided.

  The arguments and the error are those of `run`.
  """
  read = program_files.read_program(program)
  choice = choose(read, options)
  if read.python_2 and not quiet:
    print(f"tf-lossscale: {read.python_2}", file=sys.stderr)
  try:
    env = make_environment(choice)
  except ImportError as error:
    if any(options[1:]) or read.uses(KERAS):
      raise RunError(str(error)) from None
    choice = choice._replace(keras=None, optimizers=None)
    env = make_environment(choice)
  env[legacy_names.QUIET] = str(int(quiet))
  if quiet:
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
  env[legacy_names.PACKAGES] = os.pathsep.join(read.packages)
  if choice.decision is None and not any(options):
    env[legacy_names.MODE] = "auto"
  elif choice.decision is not None and not quiet:
    words = " ".join(program[: 1 + (program[0] == "-m")])
    print(
      f"tf-lossscale: {words} is {choice.describe()}: run with {choice}; "
      "--quiet omits this line",
      file=sys.stderr,
    )
  return env


def make_environment(choice: Choice) -> dict[str, str]:
  """Returns the environment in which Python runs a program as chosen.

  Raises:
    ImportError: The Keras of that choice is not installed.
  """
  env = dict(os.environ)
  env[legacy_names.MODE] = f"tf{choice.tensorflow}"
  path = env.get("PYTHONPATH", "")
  # A program that was itself started by `run` has the folder already.
  if path.partition(os.pathsep)[0] != _SITE:
    env["PYTHONPATH"] = _SITE + (os.pathsep + path if path else "")
  env.pop(legacy_names.KERAS_OPTIMIZERS, None)
  if choice.optimizers is not None:
    env[legacy_names.KERAS_OPTIMIZERS] = choice.optimizers
  if choice.keras is not None:
    env.update(which_keras.make_environment(choice.keras))
  return env


def _find_interpreter_flags(command: Sequence[str]) -> list[str]:
  """Returns Python's own options in the command that started this process."""
  flags: list[str] = []
  words = iter(command[1:])
  for word in words:
    if not word.startswith("-") or word[:2] in ("-c", "-m"):
      break
    flags.append(word)
    if word in ("-W", "-X"):
      flags.append(next(words))
  return flags


def choose(program: program_files.Program, options: Choice) -> Choice:
  """Chooses a program's TensorFlow and Keras.

  Returns:
    The choice. `which_tensorflow` decides about TensorFlow. A program gets
    Keras 2 if it gets TensorFlow 1, uses a legacy name, `tf.estimator` or a
    name that Keras 3 lacks, or asks for Keras 2's legacy optimizers. It gets
    the legacy optimizers if it gets Keras 2.

  Raises:
    RunError: Legacy optimizers are asked for with Keras 3.
  """
  tensorflow, keras, optimizers, *_ = options
  wants_legacy = optimizers == old_keras.LEGACY
  if wants_legacy and keras == 3:
    raise RunError(
      "--keras-optimizers=legacy needs Keras 2, because Keras 3 has no legacy "
      "optimizers: use --keras2 instead of --keras3"
    )
  read = program.list_sources()
  decision = None
  if tensorflow is None and program.uses(_TENSORFLOW):
    decisions = map(which_tensorflow.decide, program.levels)
    decision = next(
      (each for each in decisions if each.signs), None
    ) or which_tensorflow.decide_silent(read)
    tensorflow = decision.tensorflow
  asking = next(
    (name for source in read for name in find_signs_of_keras_2(source)), ""
  )
  if keras is None and (tensorflow == 1 or asking or wants_legacy):
    keras = 2
  if optimizers is None and keras == 2:
    optimizers = old_keras.LEGACY
  return Choice(tensorflow or 2, keras, optimizers, decision, asking)


def find_signs_of_keras_2(source: sources.SourceFile) -> Iterator[str]:
  """Yields the names in a source that say Keras 2, each with its place."""
  place = f"{source.path} line"
  for use in source.uses:
    if _KERAS_2.match(use.name) or _is_legacy(use.name):
      yield f"{use.written}, {place} {use.line}"
  if "tf_compat_lossscale" not in source.modules:
    # This package's optimizer for Keras 3 has the methods, too.
    for attribute in source.unknown:
      if attribute.attr in _METHODS_OF_KERAS_2:
        yield f".{attribute.attr}, {place} {attribute.lineno}"


def _is_legacy(name: str) -> bool:
  return name.startswith("tensorflow.") and bool(legacy_names.find_home(name))


def _explain_choice(choice: Choice) -> Iterator[str]:
  """Yields what a program runs on, and by which names, in lines."""
  signs = choice.decision.signs if choice.decision is not None else ()
  reason = "by" if signs else "by no name"
  if choice.decision is None:
    reason = "an option says so, or no file uses TensorFlow"
  yield f"TensorFlow {choice.tensorflow}: {reason}"
  for sign in signs[:_MOST_NAMES]:
    place = f"{os.path.relpath(sign.path)}:{sign.line}"
    yield f"  {place}: {sign.written} (TensorFlow {sign.tensorflow})"
  if len(signs) > _MOST_NAMES:
    yield f"  and {len(signs) - _MOST_NAMES} other names"
  if choice.keras is None:
    yield "Keras: as the environment has it"
  else:
    reason = choice.keras_name
    if not reason and choice.tensorflow == 1:
      reason = "TensorFlow 1 needs it"
    yield f"Keras {choice.keras}{reason and f': {reason}'}"
    try:
      which_keras.make_environment(choice.keras)
    except ImportError as error:
      yield f"missing: {error}"
  if choice.optimizers is not None:
    yield f"tf.keras.optimizers: the {choice.optimizers} classes"


def _explain_missing(
  read: Sequence[sources.SourceFile], tensorflow: int | None
) -> Iterator[str]:
  """Yields what a program uses and this installation lacks, in lines."""
  release = installation.find_release()
  restored, missing = set[str](), dict[str, str]()
  for source in read:
    for use in source.uses:
      if use.only_asks or use.form in ("text", "store"):
        continue
      found = missing_names.find(use.name, tensorflow, release)
      if _is_legacy(use.name):
        restored.add(use.name.replace("tensorflow", "tf", 1))
      elif found is not None and found.is_restored and not found.command:
        restored.add(".".join(found.name.split(".")[:3]))  # As tf.contrib.slim.
      elif found is not None:
        text = f"{found.name}: {found.command}" if found.command else found.hint
        place = f"{os.path.relpath(source.path)}:{use.line}"
        missing.setdefault(text or found.name, place)
  if restored:
    yield f"put back: {', '.join(sorted(restored))}"
  for name, place in missing.items():
    yield f"missing: {name} ({place})"
