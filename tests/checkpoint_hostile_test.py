"""Damaged checkpoints: a result or a line of error, never a wrong number."""

import contextlib
import ctypes
import io
import json
import os
import pathlib
import random
import shutil
import tempfile

import helpers
import pytest

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint.files import bundle
from tf_compat_lossscale.cli import main as cli

pytestmark = pytest.mark.any_release
_CASES = 500
_SOURCES = sorted(
  path
  for pattern in (
    "tf-1.15.5/session_dynamic_adam",
    "tf-1.15.5/session_dynamic_scoped",
    "tf-1.15.5/contrib_exponential",
    "tf-2.4.4/session_dynamic_momentum_resource",
    "tf-2.8.4/session_dynamic_adam/object",
    "tf-2.0.4/keras_dynamic_adam/object",
    "tf-2.8.4/keras_policy_model/saved_model",
    "tf-2.8.4/keras_policy_model/model.h5",
  )
  for path in helpers.GOLDENS.glob(pattern)
)


def files_of(folder):
  """The files that matter: a '.meta' has no checksum, and nothing of value."""
  return sorted(
    path
    for path in folder.rglob("*")
    if path.is_file() and path.suffix not in (".meta", ".pb")
  )


def truncate(rng, path, folder):
  del folder
  data = path.read_bytes()
  path.write_bytes(data[: rng.randrange(len(data) + 1)])


def flip_bits(rng, path, folder):
  del folder
  data = bytearray(path.read_bytes())
  for _ in range(rng.choice([1, 1, 1, 8])):
    if data:
      data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
  path.write_bytes(data)


def remove(rng, path, folder):
  del rng, folder
  path.unlink()


def swap(rng, path, folder):
  other = rng.choice(files_of(folder))
  data, others = path.read_bytes(), other.read_bytes()
  path.write_bytes(others)
  other.write_bytes(data)


def mix(rng, path, folder):
  """Puts a file of another checkpoint there, of the same kind if it can."""
  source = rng.choice([s for s in _SOURCES if s.is_dir()])
  others = files_of(source)
  like = [o for o in others if o.suffix == path.suffix] or others
  shutil.copy(rng.choice(like), path)


def make_folder(rng, path, folder):
  del rng, folder
  path.unlink()
  path.mkdir()


def empty(rng, path, folder):
  del rng, folder
  path.write_bytes(b"")


def write_text(rng, path, folder):
  del rng, folder
  path.write_text("to be written\n" * 10)


def insert(rng, path, folder):
  del folder
  data = path.read_bytes()
  at = rng.randrange(len(data) + 1)
  path.write_bytes(data[:at] + rng.randbytes(rng.randrange(1, 64)) + data[at:])


_MUTATIONS = (
  *(truncate, flip_bits, flip_bits, flip_bits, remove, swap, mix, mix),
  *(make_folder, empty, write_text, insert),
)


def run(*argv):
  """The command's status, and what it wrote to stdout and stderr."""
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    try:
      status = cli.main(list(argv))
    except SystemExit as exit_:
      status = exit_.code
  return status, out.getvalue(), err.getvalue()


def state_of(path):
  return [
    (s.value, s.good_steps, s.bad_steps, s.initial)
    for s in checkpoint.describe(path).loss_scales
  ]


def tensors_of(path):
  """The bytes of every tensor, but for the graph of objects."""
  prefix = checkpoint.describe(path).path
  if prefix.endswith(".h5"):
    return set()
  opened = bundle.Bundle(prefix)
  return {
    opened.read(entry)
    for key, entry in opened.entries.items()
    if key.decode() != bundle.OBJECT_GRAPH
  }


def mutated(case, folder):
  rng = random.Random(case)
  source = rng.choice(_SOURCES)
  copy = folder / str(case) / source.name
  copy.parent.mkdir()
  if source.is_dir():
    shutil.copytree(source, copy)
  else:
    shutil.copy(source, copy)
  target = rng.choice(files_of(copy) if source.is_dir() else [copy])
  mutation = rng.choice(_MUTATIONS)
  mutation(rng, target, copy if copy.is_dir() else copy.parent)
  return source, copy, mutation


def try_cases(cases, folder):
  """In a process of its own, so that a crash would show."""
  sound = {str(path): state_of(path) for path in _SOURCES}
  known = [state for states in sound.values() for state in states]
  tensors = set().union(*map(tensors_of, _SOURCES))
  good = 0
  for case in range(*cases):
    source, copy, mutation = mutated(case, folder)
    where = (case, str(source), mutation.__name__)
    status, out, err = run("inspect", "--format=json", str(copy))
    if status:
      assert status == 2 and not json.loads(out), where
      assert err.startswith("tf-lossscale inspect: "), (where, err)
      assert len(err.splitlines()) == 1 and len(err) < 1000, (where, err)
    elif source.suffix != ".h5":  # HDF5 has no checksums.
      good += 1
      states = [
        (s["value"], s["good_steps"], s["bad_steps"], s["initial"])
        for s in json.loads(out)[0]["loss_scales"]
      ]
      assert all(state in known for state in states), (where, states)
    destination = str(folder / f"{case}.ckpt")
    again, _, err = run("convert", str(copy), destination, "--to=fp32")
    if again:
      assert again == 2 and len(err.splitlines()) == 1, (where, err)
      assert not list(folder.glob(f"{case}.ckpt*")), where
    else:
      assert not status, where
      assert tensors_of(destination) <= tensors, where
    shutil.rmtree(copy.parent)
  assert not list(folder.glob(".*")), "litter"
  print(good, "of", cases, "had a result")
  return good


@pytest.mark.parametrize("part", range(4))
def test_mutated_copies(part, tmp_path):
  cases = (part * _CASES // 4, (part + 1) * _CASES // 4)
  code = (
    "import checkpoint_hostile_test as t, pathlib; "
    f"t.try_cases({cases}, pathlib.Path({str(tmp_path)!r}))"
  )
  helpers.run_python("-c", code, timeout=240)


def test_the_mutations_do_damage(tmp_path):
  """Most copies are refused, and some are not: those left as good as whole."""
  good = try_cases((1000, 1100), tmp_path)
  assert 1 <= good <= 60


@pytest.mark.parametrize("name", ["", "missing", "empty", "text", "folder"])
def test_what_is_no_checkpoint(name, tmp_path):
  path = tmp_path / name
  if name == "empty":
    path.touch()
  elif name == "text":
    path.write_text("model_checkpoint_path")
  elif name == "folder":
    path.mkdir()
  with pytest.raises(checkpoint.CheckpointError) as error:
    checkpoint.describe(path)
  assert str(path) in str(error.value)


def give_up_reading_all():
  """Takes from this process what lets root read files that nobody may read.

  Root stays root, and may still enter its own folders: another user may have
  no way to the checkout or to the folder for temporary files.
  """
  libc = ctypes.CDLL("libc.so.6", use_errno=True)
  version_3, dac_override, dac_read_search = 0x20080522, 1 << 1, 1 << 2
  header = (ctypes.c_uint32 * 2)(version_3, 0)  # 0 is this thread.
  # (effective, permitted, inheritable), of capabilities 0 to 31 and 32 to 63.
  sets = (ctypes.c_uint32 * 6)()
  assert libc.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
  for i in range(3):
    sets[i] &= ~(dac_override | dac_read_search)
  assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())


def describe_without_permission():
  """In a process of its own: what was given up does not come back."""
  with tempfile.TemporaryDirectory() as folder:
    source = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"
    copy = pathlib.Path(folder, "copy")
    shutil.copytree(source, copy)
    (index,), (data,) = copy.glob("*.index"), copy.glob("*.data-*")
    assert run("inspect", str(copy))[0] == 0
    give_up_reading_all()
    for path in (index, data):
      path.chmod(0)
      assert not os.access(path, os.R_OK)
      status, _, err = run("inspect", str(copy))
      assert status == 2, err
      assert err == f"tf-lossscale inspect: {path}: Permission denied\n"
      path.chmod(0o644)


def test_a_file_that_may_not_be_read():
  helpers.run_alone(describe_without_permission)


def test_nothing_is_unpickled():
  """Nor run: the modules that read files import nothing that could."""
  for path in (helpers.ROOT / "tf_compat_lossscale/checkpoint").rglob("*.py"):
    text = path.read_text("utf-8")
    for word in ("pickle", "marshal", "eval(", "exec(", "yaml", "subprocess"):
      assert word not in text, (path, word)
  assert pathlib.Path(checkpoint.__file__).exists()


if __name__ == "__main__":
  helpers.main()
