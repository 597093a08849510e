"""Where a checkpoint is that a user names one way or another."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from tf_compat_lossscale.checkpoint import _table
from tf_compat_lossscale.checkpoint import description as kinds
from tf_compat_lossscale.checkpoint._errors import CheckpointError

_PARTS = re.compile(r"(.+)\.(?:index|meta|data-\d{5}-of-\d{5})")
_LATEST = re.compile(r'^model_checkpoint_path: "(.*)"', re.MULTILINE)
_VARIABLES = os.path.join("variables", "variables")
_H5 = b"\x89HDF\r\n\x1a\n"
_ZIP = b"PK\x03\x04"


class Found(NamedTuple):
  """A checkpoint.

  Attributes:
    path: A prefix, or the file of the kinds that are one.
    kind: `SAVER` for everything that has a prefix and is not a SavedModel's:
      only its index says more.
    folder: That of a SavedModel.
  """

  path: str
  kind: str = kinds.SAVER
  folder: str = ""


def find(path: str) -> Found:
  """Finds the checkpoint that a path means.

  Args:
    path: As `describe` takes it.

  Returns:
    Where it is, and what kind.

  Raises:
    CheckpointError: There is none.
  """
  try:
    return _find(path)
  except (OSError, ValueError) as error:
    if isinstance(error, CheckpointError):
      raise
    reason = getattr(error, "strerror", None) or error
    raise CheckpointError(f"{path}: {reason}") from None


def _find(path: str) -> Found:
  if os.path.isdir(path):
    return _in_folder(path)
  if os.path.exists(path + ".index"):
    return _of_prefix(path)
  match = _PARTS.fullmatch(path)
  if match and os.path.exists(match[1] + ".index"):
    return _of_prefix(match[1])
  if not os.path.exists(path):
    if match:
      raise CheckpointError(f"{match[1]}.index: No such file")
    raise CheckpointError(
      f"{path}: no such checkpoint, file or folder (name a prefix such as "
      "model.ckpt-1000, without .index)"
    )
  with open(path, "rb") as file:
    begin = file.read(len(_H5))
    file.seek(max(0, os.fstat(file.fileno()).st_size - 64))
    end = file.read()
  if begin == _H5:
    return Found(path, kinds.KERAS_H5)
  if begin.startswith(_ZIP):
    return Found(path, kinds.KERAS_ZIP)
  if _table.is_table(end) and not path.endswith(".index"):
    raise CheckpointError(
      f"{path}: a checkpoint of the first format (before TensorFlow 0.12): "
      "restore and save it with tf.compat.v1.train.Saver"
    )
  raise CheckpointError(
    f"{path}: neither a checkpoint nor a Keras file (.h5, .keras)"
  )


def _of_prefix(prefix: str) -> Found:
  folder = os.path.dirname(os.path.dirname(prefix))
  if prefix.endswith(_VARIABLES) and os.path.exists(
    os.path.join(folder, "saved_model.pb")
  ):
    return Found(prefix, kinds.SAVED_MODEL, folder)
  return Found(prefix)


def _in_folder(folder: str) -> Found:
  if os.path.exists(os.path.join(folder, "saved_model.pb")):
    variables = os.path.join(folder, _VARIABLES)
    if not os.path.exists(variables + ".index"):
      raise CheckpointError(f"{folder}: a SavedModel without variables")
    return Found(variables, kinds.SAVED_MODEL, folder)
  state = os.path.join(folder, "checkpoint")
  if os.path.isfile(state):
    with open(state, encoding="utf-8") as file:
      match = _LATEST.search(file.read())
    if not match:
      raise CheckpointError(f"{state}: it names no model_checkpoint_path")
    latest = re.sub(r"\\(.)", r"\1", match[1])
    # Absolute ones of where it was written, too: the folder may have moved.
    for candidate in (
      os.path.join(folder, latest),
      os.path.join(folder, os.path.basename(latest)),
    ):
      if os.path.exists(candidate + ".index"):
        return _of_prefix(candidate)
    raise CheckpointError(
      f"{state}: it names {latest!r} as the latest checkpoint, which is missing"
    )
  entries = sorted(os.listdir(folder))
  prefixes = [name[:-6] for name in entries if name.endswith(".index")]
  if prefixes:
    return _of_prefix(os.path.join(folder, max(prefixes, key=_number)))
  files = [name for name in entries if name.endswith((".h5", ".keras"))]
  if len(files) == 1:
    return _find(os.path.join(folder, files[0]))
  raise CheckpointError(f"{folder}: a folder without a checkpoint")


def _number(prefix: str) -> tuple[int, str]:
  match = re.search(r"(\d+)$", prefix)
  return (int(match[1]) if match else -1, prefix)
