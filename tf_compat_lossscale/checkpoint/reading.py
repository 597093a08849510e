# SPDX-License-Identifier: Apache-2.0
"""Finds and reads checkpoints, by TensorFlow's own readers.

Paths may be of any of TensorFlow's file systems, such as gs:// or ram://.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import glob
import math
import ntpath
import os
import re
import time
from typing import Any
from typing import NamedTuple
from typing import TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message
import numpy as np

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.core.protobuf import trackable_object_graph_pb2

from tf_compat_lossscale._core.object_graph import ObjectGraph
from tf_compat_lossscale._core.tf import graphs

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_T = TypeVar("_T")
_Message = TypeVar("_Message", bound=Message)
STATE = "checkpoint"  # The file of a folder that lists its checkpoints.
_LATEST = b"model_checkpoint_path"
_SAVED_MODEL = "saved_model.pb"
_VARIABLES = os.path.join("variables", "variables")
_PARTS = re.compile(r"(.+)\.(index|meta|data-[0-9]{5}-of-[0-9]{5})", re.DOTALL)
DATA = re.compile(r"\.data-[0-9]{5}-of-([0-9]{5})")
_STEP = re.compile(r"(.*?)-?([0-9]+)", re.DOTALL)
MOST = 20  # The number of problems that a message lists at most.
_MANY = 5  # The number of checkpoints that an error lists at most.
_KERAS = (".h5", ".hdf5", ".keras")
_FIRST_FORMAT = (
  "a checkpoint of TensorFlow's first format (V1) has none, and is restored by "
  "tf.compat.v1.train.Saver: save it once without write_version"
)
# How TensorFlow names an op that ran eagerly.
_OPS = re.compile(r"\{\{[^}]*\}\} | \[Op:[^]]*\]")
_TRIES = 5  # The number of tries after which reading fails.
_PAUSE = 0.01  # Seconds before the second try; doubled for each that follows.
_PATIENCE = 1.0  # Seconds to wait for the index that fits the data files.


class CheckpointError(ValueError):
  """An error for a checkpoint that is missing, damaged or of the wrong kind.

  The message is one line: it names the checkpoint or the value, what was
  expected, and what to do. What to paste may follow in further lines.
  """

  def __init__(self, message: str = "", lines: Sequence[str] = ()) -> None:
    super().__init__("\n".join(map(escape, [message, *lines])))


class PartialError(CheckpointError):
  """An error for a tensor of which the checkpoint has some slices alone."""


class _Overwritten(Exception):
  """Another process has overwritten the checkpoint that is being read."""


def escape(text: str) -> str:
  """Returns a text that prints in one line: `a\\nb` if it has a line end.

  Checkpoints may have any bytes as names.
  """
  return "".join(
    char if char.isprintable() else char.encode("unicode_escape").decode()
    for char in text
  )


def shorten(texts: Iterable[str], most: int = MOST) -> list[str]:
  """Returns the first of some texts, and the number of the others."""
  listed = list(texts)
  more = len(listed) - most
  return [*listed[:most], *([f"and {more} more"] if more > 0 else [])]


class TensorSpec(NamedTuple):
  """The dtype of a tensor, by its name in TensorFlow, and the shape."""

  dtype: str
  shape: tuple[int, ...]

  def __str__(self) -> str:
    return f"{self.dtype} {list(self.shape)}"

  @property
  def size(self) -> int:
    """The number of bytes of the elements; 0 for strings."""
    if self.dtype in ("string", "variant", "resource"):
      return 0
    return int(tf.dtypes.as_dtype(self.dtype).size * math.prod(self.shape))


class Checkpoint:
  """An open checkpoint.

  All values are of one generation, even if another process overwrites the
  checkpoint meanwhile: TensorFlow compares each with the checksum in the index
  that was read first.

  Attributes:
    prefix: The path without '.index'.
    specs: Name -> dtype and shape of all tensors but the object graph.
    notes: What a user should know about the choice of the checkpoint.
  """

  def __init__(self, prefix: str, notes: Sequence[str] = ()) -> None:
    self.prefix = prefix
    self.notes = tuple(notes)
    self.is_checked = False  # Whether `check_current` found it unchanged.
    for path in (prefix + ".index", prefix + ".meta", *list_data(prefix)):
      _refuse_pipe(path)
    refuse_pattern(prefix)
    self._stamp = _read_stamp(prefix)
    with explain(self.prefix):
      self._reader = tf.compat.v1.train.NewCheckpointReader(prefix)
      shapes = self._reader.get_variable_to_shape_map()
      dtypes = self._reader.get_variable_to_dtype_map()
    self.specs = {
      name: TensorSpec(dtypes[name].name, tuple(shape))
      for name, shape in sorted(shapes.items())
    }
    self._has_objects = self.specs.pop(OBJECT_GRAPH, None) is not None

  @functools.cached_property
  def object_graph(self) -> Any:
    """The `TrackableObjectGraph`; None if the variables are saved by name."""
    if not self._has_objects:
      return None
    with explain(self.prefix):
      data = self._reader.get_tensor(OBJECT_GRAPH)
      return trackable_object_graph_pb2.TrackableObjectGraph.FromString(data)

  @functools.cached_property
  def objects(self) -> ObjectGraph:
    """The same, to be asked for optimizers and slots."""
    shapes = {name: spec.shape for name, spec in self.specs.items()}
    return ObjectGraph(self.object_graph, shapes)

  @functools.cached_property
  def saved_model(self) -> str | None:
    """The folder of the SavedModel that the checkpoint is part of, if any."""
    folder = os.path.dirname(os.path.dirname(self.prefix))
    if self.prefix.endswith(_VARIABLES):
      with explain(self.prefix):
        if tf.io.gfile.exists(os.path.join(folder, _SAVED_MODEL)):
          return folder
    return None

  @functools.cached_property
  def meta_graph(self) -> meta_graph_pb2.MetaGraphDef | None:
    """The MetaGraph of the '.meta' file beside, or of the SavedModel.

    It is None if there is none that can be read. It may be another program's:
    take the release and the control flow from it, and nothing else.
    """
    try:
      if self.saved_model is not None:
        path = os.path.join(self.saved_model, _SAVED_MODEL)
        model = read_message(path, saved_model_pb2.SavedModel())
        return model.meta_graphs[0] if model.meta_graphs else None
      path = self.prefix + ".meta"
      if not tf.io.gfile.exists(path):
        return None
      return read_message(path, meta_graph_pb2.MetaGraphDef())
    except (CheckpointError, tf.errors.OpError) as error:
      why = get_first_line(error).removeprefix(f"{path}: ")
      self.notes += (f"{path} is ignored: {why}",)
      return None

  def read(self, name: str) -> np.ndarray:
    """Reads a tensor; that of strings is an array of objects, namely bytes."""
    if name not in self.specs:
      raise CheckpointError(f"{self.prefix}: it has no tensor {name!r}")
    with explain(f"{self.prefix}: {name}"):
      value = self._reader.get_tensor(name)
      # NumPy's own strings lose zeros at their end.
      return np.asarray(value, object if isinstance(value, bytes) else None)

  def restore(self, slices: Sequence[tuple[str, str]]) -> list[tf.Tensor]:
    """Reads tensors, or slices of them, without a copy in NumPy's memory.

    A slice is what `RestoreV2` takes: "7 2 0,3:-" are the first 3 of 7 rows,
    and "" is the whole tensor.
    """
    if not slices:
      return []
    listed, parts = zip(*slices)
    with explain(self.prefix), graphs.run_on_cpu():
      restored: list[tf.Tensor] = tf.raw_ops.RestoreV2(
        prefix=self.prefix,
        tensor_names=tf.constant(np.array(listed, object), tf.string),
        shape_and_slices=parts,
        dtypes=[tf.as_dtype(self.specs[name].dtype) for name in listed],
      )
      return restored

  def read_scalar(self, name: str) -> int | float:
    """Reads a number; raises an error if the tensor is none."""
    value = self.read(name)
    if value.shape or value.dtype.kind in "OSUc":
      raise CheckpointError(
        f"{self.prefix}: {name} is no number, but {self.specs[name]}"
      )
    number = value.item()
    # bfloat16 is of no kind that NumPy knows.
    return number if isinstance(number, (bool, int)) else float(number)

  def check_current(self) -> None:
    """Ends the attempt if another process has overwritten the checkpoint.

    `read_consistently` makes another attempt then. Call this after the last
    tensor was read, before the first variable is assigned: from then on the
    attempt counts, whatever happens to the files.
    """
    if _read_stamp(self.prefix) != self._stamp:
      raise _Overwritten
    self.is_checked = True


def read_consistently(
  path: str | os.PathLike[str], attempt: Callable[[Checkpoint], _T]
) -> _T:
  """Reads a checkpoint, again if another process overwrites it meanwhile.

  `attempt` gets the open checkpoint, up to five times. It reads all tensors
  before it assigns any variable, and calls `Checkpoint.check_current` in
  between. What it raises is raised here if the checkpoint did not change.
  """
  for number in range(_TRIES):
    prefix, note = _locate(path)
    checkpoint, stamp = None, _read_stamp(prefix)
    try:
      checkpoint = Checkpoint(prefix, [note] if note else [])
      result = attempt(checkpoint)
      if not checkpoint.is_checked:
        checkpoint.check_current()
      return result
    except _Overwritten:
      pass
    except Exception as error:
      is_done = checkpoint is not None and checkpoint.is_checked
      # A process writes the data files first, which the old index does not fit.
      is_torn = isinstance(error.__cause__ or error, tf.errors.OpError)
      patience = _PATIENCE if is_torn else 0
      if is_done or not _will_differ(prefix, stamp, patience):
        raise
    time.sleep(_PAUSE * 2**number)
  raise CheckpointError(
    f"{prefix}: another process overwrote it during each of {_TRIES} tries to "
    "read it; take a checkpoint that no process writes any more, or a copy"
  )


def find(path: str | os.PathLike[str]) -> str:
  """Returns the prefix of the checkpoint that a path means."""
  return _locate(path)[0]


def check_path(path: str | os.PathLike[str]) -> str:
  """Returns the path of a checkpoint as a text, or raises an error."""
  text: Any = os.fspath(path) if isinstance(path, os.PathLike) else path
  if isinstance(text, str):
    return text
  none = (
    ", which tf.train.latest_checkpoint returns if a folder has no checkpoint"
  )
  raise CheckpointError(
    "the path of a checkpoint must be a text or a path of pathlib, but is "
    f"{text!r}{none if text is None else ''}"
  )


def refuse_pattern(prefix: str) -> None:
  """Refuses a prefix by which TensorFlow's readers find other files."""
  if re.search(r"[][*?\\\ud800-\udfff]", prefix):
    raise CheckpointError(
      f"{prefix}: TensorFlow takes the characters []*?\\ of a path for a "
      "pattern, and reads no path that is not UTF-8: rename the file or the "
      "folder"
    )


def expand(path: str) -> list[str]:
  """Returns the checkpoints one level below a folder, or the folder itself."""
  below: list[str] = []
  # What reads the path says what is wrong with it.
  with contextlib.suppress(CheckpointError), explain(path):
    if not _has_checkpoint(path):
      below = [os.path.join(path, name) for name in _list_below(path)]
  return below or [path]


def _has_checkpoint(folder: str) -> bool:
  return any(
    name in (STATE, _SAVED_MODEL) or name.endswith(".index")
    for name in _list_names(folder)
  )


def _list_below(folder: str) -> list[str]:
  names = sorted(name.rstrip("/") for name in _list_names(folder))
  return [n for n in names if _has_checkpoint(os.path.join(folder, n))]


def _locate(path: str | os.PathLike[str]) -> tuple[str, str]:
  """Returns a checkpoint's prefix, and how it was chosen among several."""
  path = check_path(path)
  with explain(path):
    # A folder may have the name of a prefix beside it. TensorFlow's Saver then
    # takes the prefix, too.
    if tf.io.gfile.exists(path + ".index"):
      return path, ""
    if tf.io.gfile.isdir(path):
      return _find_in_folder(path)
    bare = path.rstrip("/")
    parts = _PARTS.fullmatch(bare)
    prefix = parts[1] if parts else bare
    if tf.io.gfile.exists(prefix + ".index"):
      if bare == path:
        return prefix, ""
      raise CheckpointError(
        f"{path}: no folder; the checkpoint {bare} is meant without the slash"
      )
    folder, name = os.path.split(prefix)
    if any(n.startswith(name + ".data-") for n in _list_names(folder)):
      raise _make_error(
        prefix,
        f"the index {name}.index is missing, and the data files alone are no "
        "checkpoint",
      )
    if parts or not tf.io.gfile.exists(path):
      raise _make_error(
        prefix,
        "no such checkpoint, file or folder: name a prefix such as "
        "model.ckpt-1000, and no pattern",
      )
    if name == _SAVED_MODEL:
      return _find_in_folder(folder)
    if name == STATE or _read_bytes(path, 64).startswith(_LATEST):
      return _find_by_state(folder, name), ""
    if name.endswith(_KERAS):
      raise CheckpointError(
        f"{path}: a file of Keras, no checkpoint: load it by Keras, or by "
        "tf_compat_lossscale.keras.load_model"
      )
    what = "no checkpoint: name the prefix of an index, or a folder"
    raise _make_error(path, f"{what}; {_FIRST_FORMAT}")


def _find_in_folder(folder: str) -> tuple[str, str]:
  """Does what `_locate` does, for a folder."""
  if tf.io.gfile.exists(os.path.join(folder, _SAVED_MODEL)):
    variables = os.path.join(folder, _VARIABLES)
    if not tf.io.gfile.exists(variables + ".index"):
      raise CheckpointError(f"{folder}: a SavedModel without variables")
    return variables, ""
  state = os.path.join(folder, STATE)
  if tf.io.gfile.exists(state) and not tf.io.gfile.isdir(state):
    return _find_by_state(folder, STATE), ""
  prefixes = _list_prefixes(folder)
  if not prefixes:
    below = ", ".join(shorten(_list_below(folder), _MANY))
    more = f"; those in it have some: {below}" if below else ""
    if not more and any(".data-" in name for name in _list_names(folder)):
      more = ": there are data files, but no index"
    raise CheckpointError(f"{folder}: a folder without a checkpoint{more}")
  counts = Counter(_split_step(name)[0] for name in prefixes)
  name = max(prefixes[::-1], key=lambda name: counts[_split_step(name)[0]])
  note = ""
  if len(prefixes) > 1:
    note = (
      f"{folder} has no file 'checkpoint' that says which of its "
      f"{len(prefixes)} checkpoints is the latest: took {name}, the highest "
      "step of the most frequent name"
    )
  return os.path.join(folder, name), note


def _find_by_state(folder: str, state: str) -> str:
  """Returns the prefix that the file 'checkpoint' of a folder names."""
  path = os.path.join(folder, state)
  for _ in range(2):  # A Saver may save another one, and remove the latest.
    _refuse_pipe(path)
    found = None
    with contextlib.suppress(ValueError):
      found = tf.train.get_checkpoint_state(folder, state)
    if found is None:
      raise _make_error(
        path,
        "it is no text of a CheckpointState, or names no model_checkpoint_path",
      )
    latest = found.model_checkpoint_path
    # The folder may come from elsewhere, also from Windows.
    for candidate in (
      latest,
      os.path.join(folder, os.path.basename(latest)),
      os.path.join(folder, ntpath.basename(latest)),
    ):
      if tf.io.gfile.exists(candidate + ".index"):
        return candidate
  raise _make_error(
    path,
    f"it names {latest!r} as the latest checkpoint, whose index is missing; "
    + _FIRST_FORMAT,
  )


def _split_step(prefix: str) -> tuple[str, int]:
  """Splits 'model.ckpt-10' into ('model.ckpt', 10); the step may be -1."""
  match = _STEP.fullmatch(prefix)
  return (match[1], int(match[2])) if match else (prefix, -1)


def _list_names(folder: str) -> list[str]:
  """Returns the names in a folder; none if there is no such folder."""
  folder = folder or os.curdir
  return tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []


def _list_prefixes(folder: str) -> list[str]:
  """Returns the names of the checkpoints in a folder, by their steps."""
  names = [n[:-6] for n in _list_names(folder) if n.endswith(".index")]
  return sorted(names, key=lambda name: (_split_step(name)[1], name))


def _make_error(path: str, what: str) -> CheckpointError:
  """Returns an error for a path, which names the checkpoints beside it."""
  folder, name = os.path.split(path)
  found = _list_prefixes(folder)
  # 'model.ckpt' without a step means those of that name.
  same = [other for other in found if _split_step(other)[0] == name]
  where = os.path.join(folder, "") or "this folder"
  listed = ", ".join(shorten((same or found)[::-1], _MANY))
  beside = f"; in {where} there is: {listed}"
  return CheckpointError(f"{path}: {what}{beside if found else ''}")


def _read_bytes(path: str, size: int = -1) -> bytes:
  _refuse_pipe(path)
  with tf.io.gfile.GFile(path, "rb") as file:
    data: bytes = file.read(size)
    return data


def read_message(path: str, message: _Message) -> _Message:
  """Reads a file into a message of protobuf; returns the message."""
  with explain(path):
    data = _read_bytes(path)
  try:
    message.ParseFromString(data)
  except DecodeError as error:
    kind = type(message).__name__.removesuffix("Def")
    raise CheckpointError(f"{path}: no {kind}: {error}") from None
  return message


def _refuse_pipe(path: str) -> None:
  """Raises an error for a pipe or a device, which would wait for ever."""
  if os.path.exists(path) and not os.path.isfile(path):
    raise CheckpointError(f"{path}: not a regular file")


def list_data(prefix: str) -> list[str]:
  """Returns the paths of the data files that a checkpoint may have here."""
  paths = glob.glob(glob.escape(prefix) + ".data-*")
  return sorted(p for p in paths if DATA.fullmatch(p[len(prefix) :]))


def _read_stamp(prefix: str) -> tuple[int, ...]:
  """Returns numbers that differ if the index was replaced or written."""
  path = prefix + ".index"
  with contextlib.suppress(OSError, ValueError):
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns
  # It is missing, or on another file system.
  with contextlib.suppress(tf.errors.OpError):
    there = tf.io.gfile.stat(path)
    return there.length, there.mtime_nsec
  return ()


def _will_differ(prefix: str, stamp: tuple[int, ...], patience: float) -> bool:
  """Returns whether an index differs from its stamp within some seconds."""
  end = time.monotonic() + patience
  while _read_stamp(prefix) == stamp:
    if time.monotonic() >= end:
      return False
    time.sleep(_PAUSE)
  return True


@contextlib.contextmanager
def explain(
  where: str, kinds: tuple[type[Exception], ...] = (Exception,)
) -> Iterator[None]:
  """Turns the errors of file systems and of TensorFlow's readers into ours."""
  try:
    yield
  except (MemoryError, tf.errors.ResourceExhaustedError):
    raise CheckpointError(f"{where}: not enough memory to read it") from None
  except CheckpointError:
    raise
  except kinds as error:  # The readers raise errors of many classes.
    line = get_first_line(error)
    if "not have sufficient slices" in line:
      raise PartialError(
        f"{where}: only some slices of a tensor are in it, and TensorFlow's "
        f"readers do not tell which: restore in the program, and save ({line})"
      ) from None
    if "File system scheme" in line:
      line += "; install what adds it, such as tensorflow-io-gcs-filesystem"
    raise CheckpointError(
      f"{where}: it is damaged or cannot be read: {line}"
    ) from error


def get_first_line(error: BaseException) -> str:
  """Returns the first line of an error's message, without names of ops."""
  text = getattr(error, "message", None) or getattr(error, "strerror", None)
  line = (str(text or error) or type(error).__name__).splitlines()[0]
  return _OPS.sub("", line)
