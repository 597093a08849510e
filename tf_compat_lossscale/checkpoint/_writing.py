# SPDX-License-Identifier: Apache-2.0
"""Writes new checkpoints and files: whole, or not at all.

All is written into a new folder beside the destination first, by TensorFlow's
SaveV2, flushed to the disk and renamed, the index last. A process that is
killed meanwhile leaves a folder `.NAME.….unfinished`, which can be removed.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import contextlib
import importlib
import os
import re
import tempfile
from typing import Any
import zipfile

from google.protobuf import text_format
import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import graphs
from tf_compat_lossscale.checkpoint import names as _names
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.checkpoint._targets import Source
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import TensorSpec

_SCHEME = re.compile(r"[a-zA-Z][0-9a-zA-Z.]*://")  # As in TensorFlow.
_NEW = "new"  # The prefix within the new folder.
_NUMBERS = {"float16", "float32", "float64"} | _names.INTEGERS - {"string"}
_DTYPES = {
  "npz": _NUMBERS | {"complex64", "complex128"},
  "safetensors": _NUMBERS | {"bfloat16"},
}
_LONGEST_NAME = (1 << 16) - 1 - len(".npy")  # Bytes, in a zip file.
_GROUP = 32 << 20  # Bytes of tensors that a thread reads at a time.
_THREADS = 2
# What no checkpoint's prefix ends in.
_OTHER_ENDS = (
  *(".npz", ".safetensors", ".h5", ".hdf5", ".keras", ".pb"),
  *(".index", ".meta"),
)


def check_prefix(prefix: str, overwrite: bool) -> None:
  """Refuses a path at which no checkpoint may be written."""
  _check_path(prefix, "model.ckpt")
  if os.path.exists(prefix) and not os.path.isfile(prefix):
    raise CheckpointError(f"{prefix}: no file, but a device or a pipe")
  reading.refuse_pattern(prefix)
  end = os.path.splitext(prefix)[1].lower()
  if end in _OTHER_ENDS or reading.DATA.search(prefix):
    raise CheckpointError(
      f"{prefix}: a checkpoint's prefix does not end in {end}: name one such "
      "as model.ckpt, or choose --to=npz or --to=safetensors for one file"
    )
  for path in (prefix + ".index", *reading.list_data(prefix), prefix + ".meta"):
    if os.path.lexists(path) and not overwrite:
      raise CheckpointError(
        f"{path}: there is a checkpoint already, or a part of one that another "
        "process is writing; --overwrite (overwrite=True) replaces it"
      )


def _check_path(path: str, example: str) -> None:
  """Refuses folders, and the paths of TensorFlow's other file systems.

  There, files cannot be renamed all at once, so a checkpoint would not appear
  whole or not at all.
  """
  if _SCHEME.match(path):
    raise CheckpointError(
      f"{path}: checkpoints are written to folders of this machine alone: name "
      "one, and copy the files with the tool of that storage, the index last"
    )
  if os.path.isdir(path) or not os.path.basename(path):
    raise CheckpointError(
      f"{path}: a folder; name what is to be in it, such as "
      f"{os.path.join(path, example)}"
    )


@contextlib.contextmanager
def _make_folder(path: str) -> Iterator[str]:
  """Yields a new folder beside a path; flushes the path and removes the folder.

  If the folder of the path is missing, too, the new one is in the nearest that
  is there.
  """
  parent, name = os.path.split(os.path.abspath(path))
  while not os.path.lexists(parent):
    parent = os.path.dirname(parent)
  try:
    with tempfile.TemporaryDirectory(
      prefix=f".{name[:99]}.",
      suffix=".unfinished",
      dir=parent,
      ignore_cleanup_errors=True,
    ) as folder:
      yield folder
      _flush(os.path.dirname(path) or ".", names=())
  except OSError as error:
    where = error.filename2 or error.filename or path
    raise CheckpointError(f"{where}: {error.strerror or error}") from error
  except tf.errors.OpError as error:
    raise CheckpointError(
      f"{path}: it cannot be written: {reading.get_first_line(error)}"
    ) from error


def write_checkpoint(
  prefix: str,
  sources: Mapping[str, Source],
  checkpoint: Checkpoint,
  overwrite: bool,
  keep_meta: bool,
  progress: Callable[[int], None],
) -> list[str]:
  """Writes a checkpoint, or leaves the destination as it was.

  By `keep_meta`, the MetaGraph of the old one describes the new one, too.

  Returns:
    What the user should know, in sentences.
  """
  old = checkpoint.prefix
  if os.path.realpath(prefix) == os.path.realpath(old):
    raise CheckpointError(
      f"{prefix}: the source, which is never changed, has that path; name "
      "another path"
    )
  notes = []
  has_meta = tf.io.gfile.exists(old + ".meta")
  with _make_folder(prefix) as folder:
    _save(folder, prefix, sources, checkpoint, progress)
    if has_meta and keep_meta:
      tf.io.gfile.copy(old + ".meta", os.path.join(folder, _NEW + ".meta"))
      notes.append(f"{prefix}.meta is copied from the source")
    _flush(folder)
    checkpoint.check_current()
    check_prefix(prefix, overwrite)
    os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
    _publish(folder, prefix, overwrite)
    notes += _write_state(folder, prefix)
  if has_meta and not keep_meta:
    notes.append(
      f"{old}.meta is not copied, since its graph has other names: the program "
      "that goes on writes a new one"
    )
  return notes


def check_file(path: str, kind: str, overwrite: bool) -> None:
  """Refuses a file that cannot be written, before anything is read."""
  _check_path(path, f"weights.{kind}")
  end = os.path.splitext(path)[1]
  if end not in ("", f".{kind}"):
    raise CheckpointError(
      f"{path}: the name of a file of {kind} does not end in {end}: name "
      f"one such as {os.path.splitext(path)[0]}.{kind}"
    )
  if os.path.lexists(path):
    if not overwrite:
      raise CheckpointError(
        f"{path}: it exists; --overwrite (overwrite=True) replaces it"
      )
    if not end or not (os.path.isfile(path) or os.path.islink(path)):
      raise CheckpointError(
        f"{path}: it exists and is no file *.{kind}, so it is not replaced: "
        "name another path, or remove it"
      )
  if kind == "safetensors":
    _import_safetensors()


def check_tensors(
  path: str, kind: str, specs: Mapping[str, TensorSpec]
) -> None:
  """Refuses tensors whose dtypes or names a kind of file does not have."""

  def fits(name: str) -> bool:
    if kind == "safetensors":
      return name != "__metadata__"
    # NumPy looks for the file's name first, which ends in .npy.
    is_hidden = name.endswith(".npy") and name[: -len(".npy")] in specs
    is_short = len(name.encode()) <= _LONGEST_NAME
    return is_short and "\0" not in name and not is_hidden

  unfit = [
    f"{name[:99]!r} ({spec.dtype})"
    for name, spec in specs.items()
    if spec.dtype not in _DTYPES[kind] or not fits(name)
  ]
  if unfit:
    raise CheckpointError(
      f"{path}: {kind} cannot have tensors of such names or dtypes: "
      f"{', '.join(reading.shorten(unfit, 5))}; leave them out by exclude, on "
      "the command line by --exclude"
    )


def write_file(
  path: str,
  kind: str,
  overwrite: bool,
  checkpoint: Checkpoint,
  sources: Mapping[str, Source],
  progress: Callable[[int], None],
) -> None:
  """Writes tensors into one file that other programs read.

  `.npz` is written one tensor after the other; for safetensors, all of them are
  in memory.
  """

  def read() -> Iterator[tuple[str, np.ndarray]]:
    for name, source in sources.items():
      yield name, source.read(checkpoint)
      progress(source.spec.size)

  with _make_folder(path) as folder:
    new = os.path.join(folder, _NEW)
    if kind == "safetensors":
      whole = {name: np.array(array, order="C") for name, array in read()}
      with open(new, "xb") as file:
        mode = os.fstat(file.fileno()).st_mode
      metadata = {"format": "tf", "source": checkpoint.prefix}
      _import_safetensors().save_file(whole, new, metadata)
      os.chmod(new, mode)  # safetensors lets the owner alone read the file.
    else:
      with zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as archive:
        for name, array in read():
          # Its size is known when it has been written.
          with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, array, allow_pickle=False)
    _flush(folder)
    checkpoint.check_current()
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    _place(new, path, overwrite)


def _import_safetensors() -> Any:
  try:
    return importlib.import_module("safetensors.numpy")
  except ImportError:
    raise CheckpointError(
      "safetensors files need the package safetensors, which is missing: pip "
      "install 'tf_compat_lossscale[safetensors]'"
    ) from None


def _place(path: str, destination: str, overwrite: bool) -> None:
  """Renames a file; only if `overwrite`, another file is replaced."""
  if not overwrite:
    try:
      os.link(path, destination)
      return os.unlink(path)
    except OSError:  # Some file systems have no links.
      if os.path.lexists(destination):
        raise CheckpointError(
          f"{destination}: another process wrote it meanwhile"
        ) from None
  os.replace(path, destination)


def _save(
  folder: str,
  prefix: str,
  sources: Mapping[str, Source],
  checkpoint: Checkpoint,
  progress: Callable[[int], None],
) -> None:
  """Saves tensors in a new folder, each group of them in a data file.

  One of two threads reads while the other waits for the disk.
  """
  groups = _group(prefix, sources)
  parts = [os.path.join(folder, f"part-{i}") for i in range(len(groups))]

  def save(part: str, names: Sequence[str]) -> int:
    group = [sources[name] for name in names]
    with graphs.run_on_cpu():
      tf.raw_ops.SaveV2(
        prefix=part,
        tensor_names=tf.constant(np.array(names, object), tf.string),
        shape_and_slices=[""] * len(names),
        tensors=_read(checkpoint, group),
      )
    _flush(folder, map(os.path.basename, reading.list_data(part)))
    return sum(source.spec.size for source in group)

  with futures.ThreadPoolExecutor(_THREADS) as pool:
    for size in pool.map(save, parts, groups):
      progress(size)
  with graphs.run_on_cpu():
    tf.raw_ops.MergeV2Checkpoints(
      checkpoint_prefixes=parts,
      destination_prefix=os.path.join(folder, _NEW),
      delete_old_dirs=False,
    )


def _group(prefix: str, sources: Mapping[str, Source]) -> list[list[str]]:
  """Returns the names of tensors in groups, one for each new data file.

  A replaced checkpoint stays whole until the new index replaces its own. So the
  new data files have other names than the old ones: by their number.
  """
  taken = {int(path.rpartition("-")[2]) for path in reading.list_data(prefix)}
  free = [n for n in range(1, len(sources) + 1) if n not in taken]
  if not free:
    raise CheckpointError(
      f"{prefix}: its data file would be replaced before its index, since "
      "there are too few tensors: name another path, or remove it first"
    )
  size = sum(source.spec.size for source in sources.values())
  count = min(free, key=lambda number: abs(number - size // _GROUP - 1))
  ordered = sorted(sources, key=lambda name: sources[name].spec.size)
  return [ordered[i::count] for i in range(count)]


def _read(checkpoint: Checkpoint, sources: Sequence[Source]) -> list[tf.Tensor]:
  """Reads what stays as it is without a copy in NumPy's memory."""
  same = [
    each
    for each in sources
    if each == Source(each.key, each.spec)
    and each.spec == checkpoint.specs.get(each.key)
  ]
  restored = checkpoint.restore([(each.key, "") for each in same])
  tensors = dict(zip(same, restored))
  return [
    tensors[each]
    if each in tensors
    else tf.constant(each.read(checkpoint), each.spec.dtype)
    for each in sources
  ]


def _publish(folder: str, prefix: str, overwrite: bool) -> None:
  """Renames the files of a new checkpoint; the index makes it one."""
  new, old = os.path.join(folder, _NEW), reading.list_data(prefix)
  index = os.stat(new + ".index")
  placed: list[str] = []
  try:
    for path in reading.list_data(new):
      target = prefix + path[len(new) :]
      _place(path, target, overwrite=False)
      placed.append(target)
    _place(new + ".index", prefix + ".index", overwrite)
  except BaseException:
    # An interrupt may come when the index refers to the data files already.
    if not _is_file(prefix + ".index", index):
      for path in placed:
        os.unlink(path)
    raise
  if os.path.exists(new + ".meta"):
    _place(new + ".meta", prefix + ".meta", overwrite)
  elif os.path.lexists(prefix + ".meta"):  # It is of the old checkpoint.
    os.unlink(prefix + ".meta")
  for path in old:  # No index refers to them any more.
    os.unlink(path)


def _is_file(path: str, stat: os.stat_result) -> bool:
  try:
    return os.path.samestat(os.stat(path), stat)
  except OSError:
    return False


def _write_state(folder: str, prefix: str) -> Iterator[str]:
  """Writes the list of a folder's checkpoints, if there is none; yields notes.

  `tf.train.latest_checkpoint` reads that list alone.
  """
  parent, name = os.path.split(prefix)
  state = os.path.join(parent, reading.STATE)
  if not os.path.lexists(state):
    found = tf.compat.v1.train.generate_checkpoint_state_proto(
      os.path.abspath(folder), name
    )
    with open(
      os.path.join(folder, reading.STATE), "w", encoding="utf-8"
    ) as file:
      file.write(text_format.MessageToString(found))
    _flush(folder, (reading.STATE,))
    with contextlib.suppress(CheckpointError):  # Another process wrote one.
      _place(os.path.join(folder, reading.STATE), state, overwrite=False)
      yield f"{state} is written, and names {name} as the latest checkpoint"
  try:
    latest = reading.find(state)
    why = f"a program that takes the latest checkpoint starts from {latest}"
  except CheckpointError as error:
    latest, why = "", str(error)
  if os.path.realpath(latest) != os.path.realpath(prefix):
    yield f"{state} stays as it was: {why}"


def _flush(folder: str, names: Iterable[str] | None = None) -> None:
  """Flushes files of a folder, by default all, and their names to the disk."""
  for name in os.listdir(folder) if names is None else names:
    with open(os.path.join(folder, name), "rb") as file:
      os.fsync(file.fileno())
  if hasattr(os, "O_DIRECTORY"):  # Windows cannot open a folder.
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
      os.fsync(number)
    finally:
      os.close(number)
