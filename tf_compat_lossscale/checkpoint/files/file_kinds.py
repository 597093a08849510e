# SPDX-License-Identifier: Apache-2.0
"""Tells by a file's first bytes, or its name, which program wrote the file."""

from __future__ import annotations

import re

# The number of bytes at a file's beginning that tell its kind.
BEGIN = 512
_MOST_HEADER = 100 << 20  # Bytes, as the safetensors package allows.
# The first bytes -> what the file is and what to do.
_BEGINS: tuple[tuple[re.Pattern[bytes], str], ...] = tuple(
  (re.compile(pattern, re.DOTALL), what)
  for pattern, what in (
    (
      rb"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19\.",
      "a checkpoint of PyTorch before 1.6: torch.load reads it",
    ),
    (
      rb"\x80[\x02-\x05]",
      "a pickle of Python, which may run any code when it is loaded: load it "
      "with the program that wrote it",
    ),
    (
      rb"\x93NUMPY",
      "an array of NumPy (.npy), without a name: numpy.load reads it",
    ),
    (
      rb"\x1f\x8b|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd|7z\xbc\xaf|.{257}ustar",
      "a packed file: unpack it, and name the checkpoint in it",
    ),
    (
      rb".{4}TFL3",
      "a model of TensorFlow Lite, which has no variables: name the checkpoint "
      "that it was converted from",
    ),
    (
      rb"version https://git-lfs",
      "a pointer of Git LFS in place of a file: fetch it with git lfs pull",
    ),
    (
      rb"\s*<(!DOCTYPE|html|\?xml)",
      "a page of the web, not the file behind it: download it again",
    ),
  )
)
# The same for the ends of names.
_ENDS: tuple[tuple[tuple[str, ...], str], ...] = (
  (
    (".pb", ".pbtxt", ".graphdef"),
    "a graph, whose weights, if any, are constants: name the checkpoint that "
    "it was made from, or the folder of a SavedModel",
  ),
  (
    (".onnx",),
    "a model of ONNX, which has no variables: name the checkpoint that it was "
    "converted from",
  ),
  (
    (".pt", ".pth"),
    "by its name a checkpoint of PyTorch, which it does not look like",
  ),
)
# The ends of names in other programs' zip files -> what they are.
_MEMBERS = {
  ".npy": "a file of NumPy arrays (.npz): numpy.load reads it",
  "/data.pkl": "a checkpoint of PyTorch: torch.load reads it",
  "saved_model.pb": "a SavedModel that was packed: unpack it",
}


def is_h5(begin: bytes) -> bool:
  """Returns whether a file begins as HDF5 does."""
  return begin.startswith(b"\x89HDF\r\n\x1a\n")


def is_zip(begin: bytes) -> bool:
  """Returns whether a file begins as a zip file does."""
  return begin.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_safetensors(begin: bytes) -> bool:
  """Returns whether a file begins as one of the safetensors package does."""
  size = int.from_bytes(begin[:8], "little")
  return len(begin) > 9 and 2 <= size <= _MOST_HEADER and begin[8:9] == b"{"


def name_zip(names: list[str]) -> str:
  """Returns what a zip file with such names is, if Keras did not write it."""
  for end, kind in _MEMBERS.items():
    if any(name.endswith(end) for name in names):
      return kind
  return "a zip file that Keras did not write"


def name_file(path: str, begin: bytes) -> str | None:
  """Returns what a file is and what to do, in words; None if it is unknown."""
  if not begin:
    return "it is empty"
  for pattern, what in _BEGINS:
    if pattern.match(begin):
      return what
  if "tfevents" in path.rpartition("/")[2]:
    return "an event file: tf-lossscale plot shows the loss scale in it"
  for ends, what in _ENDS:
    if path.endswith(ends):
      return what
  return None
