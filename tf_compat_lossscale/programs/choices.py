# SPDX-License-Identifier: Apache-2.0
"""Chooses a program's TensorFlow and its Keras by its sources, and says why."""

from __future__ import annotations

from collections.abc import Iterator
import os
import re
from typing import NamedTuple

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.programs import missing_names
from tf_compat_lossscale.programs import old_keras
from tf_compat_lossscale.programs import program_files
from tf_compat_lossscale.programs import sources
from tf_compat_lossscale.programs import which_tensorflow

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
# Keras, and what TensorFlow 2 implements by Keras.
KERAS = re.compile(
  r"tensorflow\.(compat\.v[12]\.)?(python\.)?(keras|layers|nn\.rnn_cell)\b"
)
_MOST_NAMES = 12  # Of `explain`.


class RunError(Exception):
  """An error for a program that cannot be run; the message is one line."""


class Options(NamedTuple):
  """What the user chose; None to decide by the program's sources.

  Attributes:
    tensorflow: 1 or 2.
    keras: 2 or 3.
    optimizers: "legacy" or "new": the optimizers of Keras 2.
  """

  tensorflow: int | None = None
  keras: int | None = None
  optimizers: str | None = None


class Choice(NamedTuple):
  """The TensorFlow and the Keras that a program runs on.

  Attributes:
    tensorflow: 1 or 2: the TensorFlow that `import tensorflow` gives.
    keras: 2 or 3: the Keras that `tf.keras` is; None to leave it as it is.
    optimizers: "legacy" or "new": the classes that `tf.keras.optimizers` has;
      None to leave them as they are.
    decision: The decision about TensorFlow; None if nothing was to decide,
      because the user chose or the program does not use TensorFlow.
    keras_name: The name that asks for Keras 2, and where it is; "" if there is
      none.
    uses_keras: Whether the program uses Keras, or modules built on Keras.
  """

  tensorflow: int
  keras: int | None = None
  optimizers: str | None = None
  decision: which_tensorflow.Decision | None = None
  keras_name: str = ""
  uses_keras: bool = False

  def __str__(self) -> str:
    keras = f" --keras{self.keras}" if self.keras else ""
    return f"--tf{self.tensorflow}{keras}"

  def explain(self) -> str:
    """Returns what the program's source says, in a line."""
    assert self.decision is not None
    signs = self.decision.signs
    if signs and signs[0].tensorflow == self.tensorflow:
      shown = f" ({signs[0]})"
    else:
      shown = " (no name in it tells; --tf1 if it is older)"
    return f"TensorFlow {self.tensorflow} code{shown}"


def choose(program: program_files.Program, options: Options) -> Choice:
  """Chooses a program's TensorFlow and Keras.

  Returns:
    The choice. `which_tensorflow` decides about TensorFlow. A program gets
    Keras 2 if it gets TensorFlow 1, uses a legacy name, `tf.estimator` or a
    name that Keras 3 lacks, or asks for Keras 2's legacy optimizers. It gets
    the legacy optimizers if it gets Keras 2.

  Raises:
    RunError: Legacy optimizers are asked for with Keras 3.
  """
  tensorflow, keras, optimizers = options
  wants_legacy = optimizers == old_keras.LEGACY
  if wants_legacy and keras == 3:
    raise RunError(
      "--keras-optimizers=legacy needs Keras 2, because Keras 3 has no legacy "
      "optimizers: use --keras2 instead of --keras3"
    )
  read = program.list_sources()
  names = [use.name for source in read for use in source.uses]
  decision = None
  if tensorflow is None and any(
    f"{name}.".startswith("tensorflow.") for name in names
  ):
    decisions = map(which_tensorflow.decide, program.levels)
    decision = next(
      (each for each in decisions if each.signs), which_tensorflow.Decision(2)
    )
    tensorflow = decision.tensorflow
  asking = next((name for source in read for name in find_keras_2(source)), "")
  if keras is None and (tensorflow == 1 or asking or wants_legacy):
    keras = 2
  if optimizers is None and keras == 2:
    optimizers = old_keras.LEGACY
  uses_keras = any(map(KERAS.match, names))
  return Choice(
    tensorflow or 2, keras, optimizers, decision, asking, uses_keras
  )


def find_keras_2(source: sources.Source) -> Iterator[str]:
  """Yields the names in a source that say Keras 2, each with its place."""
  place = f"{source.path} line"
  for use in source.uses:
    if _KERAS_2.match(use.name) or (
      use.name.startswith("tensorflow.") and legacy_names.find_home(use.name)
    ):
      yield f"{use.written}, {place} {use.line}"
  if "tf_compat_lossscale" not in source.modules:
    # This package's optimizer for Keras 3 has the methods, too.
    for attribute in source.unknown:
      if attribute.attr in _METHODS_OF_KERAS_2:
        yield f".{attribute.attr}, {place} {attribute.lineno}"


def explain(program: program_files.Program, choice: Choice) -> Iterator[str]:
  """Yields what a program would run on, and why, in lines."""
  decision = choice.decision
  if decision is None:
    reason = "an option says so, or no file uses TensorFlow"
    yield f"TensorFlow {choice.tensorflow}: {reason}"
  else:
    signs = decision.signs
    yield f"TensorFlow {choice.tensorflow}: {'by' if signs else 'by no name'}"
    for sign in signs[:_MOST_NAMES]:
      place = f"{os.path.relpath(sign.path)}:{sign.line}"
      yield f"  {place}: {sign.written} (TensorFlow {sign.tensorflow})"
    if len(signs) > _MOST_NAMES:
      yield f"  and {len(signs) - _MOST_NAMES} other names"
  if choice.keras is None:
    yield "Keras: as the environment has it"
  else:
    reason = choice.keras_name and f": {choice.keras_name}"
    if not reason and choice.tensorflow == 1:
      reason = ": TensorFlow 1 needs it"
    yield f"Keras {choice.keras}{reason}"
    try:
      which_keras.make_environment(choice.keras)
    except ImportError as error:
      yield f"missing: {error}"
  if choice.optimizers is not None:
    yield f"tf.keras.optimizers: the {choice.optimizers} classes"
  yield from _explain_missing(program, choice)


def _explain_missing(
  program: program_files.Program, choice: Choice
) -> Iterator[str]:
  """Yields what the program uses and this installation lacks, in lines."""
  release = which_keras.find_release()
  restored, missing = set[str](), dict[str, str]()
  for source in program.list_sources():
    for use in source.uses:
      if use.form in ("hasattr", "text", "store"):
        continue
      found = missing_names.find(use.name, choice.tensorflow, release)
      if use.name.startswith("tensorflow.") and legacy_names.find_home(
        use.name
      ):
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
