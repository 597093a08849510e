# SPDX-License-Identifier: Apache-2.0
"""Finds the checkpoint that a path means."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from tf_compat_lossscale.checkpoint import description as kinds
from tf_compat_lossscale.checkpoint.files import file_kinds
from tf_compat_lossscale.checkpoint.files import opening
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)

_PARTS = re.compile(
  r"(.+)\.(?:index|meta|data-[0-9]{5}-of-[0-9]{5})", re.DOTALL
)
# The tokens of protobuf's text format. They are bytes, since escapes stand for
# bytes and not for characters.
_TOKEN = re.compile(
  rb"""[\s:,;\[\]]+|\#[^\n]*|(?P<begin>[{<]+)"""
  rb"""|(?P<end>[}>]+)"""
  rb"""|(?P<word>[\w.+-]+)"""
  # No path is as long as 65,535 characters, and matching takes memory for each.
  rb"""|(?P<string>"(?:[^"\\\n]|\\.){,65535}"|'(?:[^'\\\n]|\\.){,65535}')"""
)
_ESCAPE = re.compile(
  rb"\\(?:([0-7]{1,3})|[xX]([\da-fA-F]{1,2})|u([\da-fA-F]{4})"
  rb"|U([\da-fA-F]{8})|(.))"
)
_ESCAPED = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v")) | {c: c for c in b"\\'\"?"}
_TRIES = 10  # To find the latest checkpoint while a Saver replaces it.
_LARGEST_STATE = 16 << 20  # Bytes; more than 50,000 paths.
_VARIABLES = os.path.join("variables", "variables")
_SAVED_MODEL = "saved_model.pb"
# A scheme of TensorFlow's file systems, and no drive of Windows.
_LOST_SLASH = re.compile(r"[a-zA-Z][0-9a-zA-Z.]+:/(?!/)")
_STATE = "checkpoint"  # The file of a folder that lists its checkpoints.
_LATEST = b"model_checkpoint_path:"


class Found(NamedTuple):
  """A checkpoint.

  Attributes:
    path: The prefix.
    kind: SAVED_MODEL, or SAVER for all other checkpoints, also for object-based
      ones: the index shows that, but is not read here.
    folder: The folder of a SavedModel.
  """

  path: str
  kind: str = kinds.SAVER
  folder: str = ""


def find(path: str) -> Found:
  """Finds the checkpoint that a path means.

  Args:
    path: A path as for `describe`.

  Returns:
    The checkpoint.

  Raises:
    CheckpointError: There is no checkpoint.
  """
  try:
    return _find(path)
  except CheckpointError:
    raise
  except (OSError, ValueError) as error:
    reason = getattr(error, "strerror", None) or error
    raise CheckpointError(f"{path}: {reason}") from None


def _find(path: str) -> Found:
  """Finds the checkpoint that a path means."""
  # A folder may have the name of a prefix beside it. TensorFlow's Saver then
  # takes the prefix, too.
  if opening.is_folder(path) and not opening.is_file(path + ".index"):
    return _find_in_folder(path)
  if opening.exists(path + ".index"):
    return find_at_prefix(path)
  match = _PARTS.fullmatch(path)
  if match and opening.exists(match[1] + ".index"):
    return find_at_prefix(match[1])
  file_kinds.refuse_others(match[1] if match else path)
  if not opening.exists(path):
    if match:
      raise CheckpointError(f"{match[1]}.index: No such file")
    scheme = _LOST_SLASH.match(path)
    if scheme:
      raise CheckpointError(
        f"{path}: no such checkpoint, file or folder; if {scheme[0]}/… is "
        "meant, give it as a string: pathlib drops the second slash"
      )
    raise CheckpointError(
      f"{path}: no such checkpoint, file or folder (name a prefix such as "
      "model.ckpt-1000, without .index)"
    )
  name = os.path.basename(path)
  if name == _STATE or _starts_as_state(path):
    return _find_by_state(path)
  if name == _SAVED_MODEL:
    return _find_in_folder(os.path.dirname(path))
  raise CheckpointError(
    f"{path}: no checkpoint: name the prefix of one, such as model.ckpt-1000, "
    "or a folder"
  )


def _starts_as_state(path: str) -> bool:
  """Returns whether a file starts as a folder's list of checkpoints does."""
  with opening.open_file(path) as file:
    return file.read(len(_LATEST)) == _LATEST


def find_at_prefix(prefix: str) -> Found:
  """Returns the checkpoint with a prefix, whose index exists."""
  folder = os.path.dirname(os.path.dirname(prefix))
  if prefix.endswith(_VARIABLES) and opening.exists(
    os.path.join(folder, _SAVED_MODEL)
  ):
    return Found(prefix, kinds.SAVED_MODEL, folder)
  return Found(prefix)


def _find_in_folder(folder: str) -> Found:
  """Finds the latest checkpoint of a folder."""
  if opening.exists(os.path.join(folder, _SAVED_MODEL)):
    variables = os.path.join(folder, _VARIABLES)
    if not opening.exists(variables + ".index"):
      raise CheckpointError(f"{folder}: a SavedModel without variables")
    return Found(variables, kinds.SAVED_MODEL, folder)
  state = os.path.join(folder, _STATE)
  if opening.is_file(state):
    return _find_by_state(state)
  entries = opening.list_folder(folder)
  prefixes = [name[:-6] for name in entries if name.endswith(".index")]
  if prefixes:
    latest = max(prefixes, key=_get_step_and_name)
    return find_at_prefix(os.path.join(folder, latest))
  raise CheckpointError(f"{folder}: a folder without a checkpoint")


def _find_by_state(state: str) -> Found:
  """Finds the latest checkpoint that a folder's list names."""
  folder = os.path.dirname(state)
  latest, tried = _read_latest(state), ""
  # A Saver may remove the latest checkpoint after it saved another one.
  for _ in range(_TRIES):
    # The path may be absolute, and the folder may have moved since.
    for candidate in (
      opening.join(folder, latest),
      os.path.join(folder, os.path.basename(latest)),
    ):
      if opening.exists(candidate + ".index"):
        return find_at_prefix(candidate)
      file_kinds.refuse_others(candidate)
    latest, tried = _read_latest(state), latest
    if latest == tried:
      break
  raise CheckpointError(
    f"{state}: it names {latest!r} as the latest checkpoint, which is missing"
  )


def _read_latest(state: str) -> str:
  """Reads the latest checkpoint's path from a state file.

  Args:
    state: The file, a CheckpointState in protobuf's text format.

  Returns:
    The last model_checkpoint_path, as in TensorFlow.

  Raises:
    CheckpointError: The file is no CheckpointState, or has no such path.
  """
  with opening.open_file(state) as file:
    data = file.read(_LARGEST_STATE + 1)
  if len(data) > _LARGEST_STATE:
    raise CheckpointError(
      f"{state}: it has more than {_LARGEST_STATE >> 20} MiB, which the list "
      "of a folder's checkpoints does not need; name a prefix such as "
      "model.ckpt-1000 instead of the folder"
    )
  at, depth, field = 0, 0, b""
  latest: list[bytes] = []
  while at < len(data):
    token = _TOKEN.match(data, at)
    if not token:
      number = 1 + data.count(b"\n", 0, at)
      line = data.split(b"\n")[number - 1]
      raise CheckpointError(
        f"{state}: line {number} is no text of a CheckpointState: "
        f"{line[:80]!r}; name a prefix such as model.ckpt-1000 instead of the "
        "folder"
      )
    at, kind = token.end(), token.lastgroup
    if kind in ("begin", "end"):
      size = token.end() - token.start()
      depth += size if kind == "begin" else -size
    if kind == "word":
      field = token[0]
      if field == b"model_checkpoint_path" and not depth:
        latest = []
    elif kind == "string" and field == b"model_checkpoint_path" and not depth:
      latest.append(_ESCAPE.sub(_unescape, token[0][1:-1]))
  path = os.fsdecode(b"".join(latest))
  if not path:
    raise CheckpointError(f"{state}: it names no model_checkpoint_path")
  return path


def _unescape(escape: re.Match[bytes]) -> bytes:
  """Returns the bytes that an escape stands for."""
  octal, two, four, eight, other = escape.groups()
  if octal:
    return bytes([int(octal, 8) & 0xFF])
  if two:
    return bytes([int(two, 16)])
  if four or eight:
    number = int(four or eight, 16).to_bytes(4, "little")
    return number.decode("utf-32-le").encode("utf-8")
  # TensorFlow keeps unknown escapes as they are.
  known = _ESCAPED.get(other[0])
  return escape[0] if known is None else bytes([known])


def _get_step_and_name(prefix: str) -> tuple[int, str]:
  """Returns a key that sorts prefixes by their steps."""
  match = re.search(r"[0-9]+\Z", prefix)
  return (int(match[0]) if match else -1, prefix)
