# SPDX-License-Identifier: Apache-2.0
"""Tests that damaged checkpoints give an error, and never a wrong number."""

import concurrent.futures
import contextlib
import ctypes
import io
import json
import os
import pathlib
import random
import shutil
import tempfile
import time

import helpers
import pytest

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale._core.bytes import wire
from tf_compat_lossscale.checkpoint.files import bundle
from tf_compat_lossscale.checkpoint.files import writer
from tf_compat_lossscale.checkpoint.files.graph_def import parse_graph
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.layouts import dataflow
from tf_compat_lossscale.cli import main as cli

pytestmark = pytest.mark.any_release
# Each mutation meets each source twice.
_CASES = 240
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
  )
  for path in helpers.GOLDENS.glob(pattern)
)


def files_of(folder):
  """Returns the files to damage: MetaGraphs have no checksums and no state."""
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
  """Replaces a file by another checkpoint's, if possible of the same suffix."""
  source = rng.choice(_SOURCES)
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
  """Runs `tf-lossscale ARGV`; returns its status, stdout and stderr."""
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    try:
      status = cli.main(list(argv))
    except SystemExit as exit_:
      status = exit_.code
  return status, out.getvalue(), err.getvalue()


def state_of(path):
  return [
    (s.value, s.good_steps, s.bad_steps)
    for s in checkpoint.describe(path).loss_scales
  ]


def tensors_of(path):
  """Returns the bytes of every tensor, except the object graph."""
  prefix = checkpoint.describe(path).path
  opened = bundle.Bundle(prefix)
  return {
    opened.read(entry)
    for key, entry in opened.entries.items()
    if key != bundle.OBJECT_GRAPH.encode() and not entry.slices
  }


def mutated(case, folder):
  """Copies a source and damages it; returns source, copy and mutation."""
  rng = random.Random(case)
  source = _SOURCES[case % len(_SOURCES)]
  copy = folder / str(case) / source.name
  copy.parent.mkdir()
  shutil.copytree(source, copy)
  target = rng.choice(files_of(copy))
  mutation = _MUTATIONS[case // len(_SOURCES) % len(_MUTATIONS)]
  mutation(rng, target, copy)
  for path in copy.rglob("*"):
    os.utime(path, (1, 1))  # Files that are just written are read again.
  return source, copy, mutation


def try_cases(cases, folder):
  """Checks `inspect` and `convert` on damaged copies.

  Returns:
    How many copies `inspect` described.
  """
  sound = {str(path): state_of(path) for path in _SOURCES}
  known = [state for states in sound.values() for state in states]
  tensors = set().union(*map(tensors_of, _SOURCES))
  good = 0
  for case in cases:
    source, copy, mutation = mutated(case, folder)
    where = (case, str(source), mutation.__name__)
    status, out, err = run("inspect", "--format=json", str(copy))
    if status:
      assert status == 2 and not json.loads(out), where
      assert err.startswith("tf-lossscale inspect: "), (where, err)
      assert len(err.splitlines()) == 1 and len(err) < 1000, (where, err)
    else:
      good += 1
      states = [
        (s["value"], s["good_steps"], s["bad_steps"])
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
  assert not list(folder.glob(".*")), "temporary files are left"
  return good


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(3))
def test_mutated_copies(part, tmp_path):
  """Checks that most copies are refused; some mutations change nothing."""
  cases = range(part * _CASES // 3, (part + 1) * _CASES // 3)
  assert 1 <= try_cases(cases, tmp_path) < 0.6 * len(cases)


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
  """Drops the capabilities of this thread that let root read all files.

  The thread's user stays root, because another user might have no access to the
  checkout or to the folder for temporary files.
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
  """Checks the error if a file is unreadable.

  Call this in a thread of its own: the thread loses capabilities for good.
  """
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
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    pool.submit(describe_without_permission).result()


_WATCHED = """
import sys
from tf_compat_lossscale.cli import main as cli

def run(*paths):
  cli.main(["inspect", "--format=json", "--verify", *paths])

source = sys.argv[1].split(":")
run(*source)  # Imports all that is needed: imports run code, too.
seen = []
watched = ("compile", "exec", "marshal.", "pickle.", "import", "ctypes.",
           "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork",
           "socket.")
sys.addaudithook(
  lambda name, _: seen.append(name) if name.startswith(watched) else None
)
run(*source)
assert not seen, seen
eval("1")  # The hook works.
assert seen == ["compile", "exec"], seen
"""


@pytest.mark.any_release
def test_special_files_are_refused(tmp_path):
  os.mkfifo(tmp_path / "pipe")  # To open a pipe would wait for ever.
  for path in ("/dev/zero", tmp_path / "pipe"):
    with pytest.raises(checkpoint.CheckpointError, match="not a regular file"):
      checkpoint.describe(path)
  good = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"
  index = shutil.copytree(good, tmp_path / "index") / "model.ckpt-10.index"
  index.unlink()
  os.mkfifo(index)
  for path in (index.parent, index):
    with pytest.raises(checkpoint.CheckpointError, match="not a regular file"):
      checkpoint.describe(path)
  meta = shutil.copytree(good, tmp_path / "meta") / "model.ckpt-10.meta"
  meta.unlink()
  meta.symlink_to("/dev/zero")  # A checkpoint can be read without it.
  assert checkpoint.describe(meta.parent).step == 10


def test_nothing_in_a_file_is_run():
  sources = [path for path in _SOURCES if "keras" in str(path)]
  helpers.run_python("-c", _WATCHED, ":".join(map(str, sources)))


@pytest.mark.parametrize(
  "text", [b"{}", b"[", b"#\n", b"'", b"model_checkpoint_path: '\\x41'\n"]
)
def test_very_long_states(text, tmp_path):
  """Checks that reading a state takes time that grows with its size alone."""
  state = tmp_path / "checkpoint"
  state.write_bytes(text * (20_000_000 // len(text)))
  begin = time.process_time()
  with pytest.raises(checkpoint.CheckpointError, match="more than 16 MiB"):
    checkpoint.describe(tmp_path)
  state.write_bytes(text * (1_000_000 // len(text)))
  with pytest.raises(checkpoint.CheckpointError, match="checkpoint: "):
    checkpoint.describe(tmp_path)
  assert time.process_time() - begin < 6


def variable(name, key):
  """Returns an encoded node of an object graph: a variable."""
  return node(attributes=[(name, key)])


def node(children=(), slots=(), attributes=()):
  """Returns an encoded node: children as (name, number), slots as numbers."""
  encode = wire.encode_field
  fields = [
    encode(1, encode(1, number) + encode(2, name)) for name, number in children
  ]
  fields += [
    encode(2, encode(1, "VARIABLE_VALUE") + encode(2, name) + encode(3, key))
    for name, key in attributes
  ]
  fields += [
    encode(3, encode(1, owner) + encode(2, name) + encode(3, slot))
    for owner, name, slot in slots
  ]
  return encode(1, b"".join(fields))


def share_an_inner_optimizer(count):
  """Returns many wrappers of one optimizer with many slots."""
  inner = node(slots=[(1, f"m{i}", 1) for i in range(count)])
  wrapper = node([("base_optimizer", 2), ("loss_scale", 1)])
  return [variable("w", "k"), inner, *[wrapper] * count]


def share_a_power(count):
  """Returns many optimizers with one variable in common."""
  return [
    variable("beta1_power", "k"),
    *[node([("beta1_power", 1)], [(1, "m", 1)])] * count,
  ]


def share_variables(count):
  """Returns many of Keras's optimizers with one list of variables."""
  optimizer = node([("iter", 1), ("beta_1", 1), ("_variables", 2)])
  return [
    variable("x", "k"),
    node([(str(i), 1) for i in range(count)]),
    *[optimizer] * count,
  ]


def share_a_scale(count):
  """Returns many optimizers with one loss scale, which has many children."""
  scale = node(
    [("current_loss_scale", 1), *((str(i), 1) for i in range(count))]
  )
  optimizer = node([("loss_scale", 2), ("base_optimizer", 1)])
  return [variable("x", "k"), scale, *[optimizer] * count]


def name_at_length(count):
  """Returns an optimizer of variables with very long names."""
  return [
    variable("x" * (100 * count), "k"),
    node([("iter", 1)], [(1, "mv"[i % 2], 1) for i in range(count)]),
  ]


def chain_slots(count):
  """Returns slots that have a slot each."""
  return [
    variable("w", "k"),
    *(node(slots=[(1, "m", i)]) for i in range(3, count)),
    node(),
  ]


@pytest.mark.thorough
@pytest.mark.parametrize(
  "make",
  [
    *(share_an_inner_optimizer, share_a_power, share_variables),
    *(share_a_scale, name_at_length, chain_slots),
  ],
)
def test_objects_that_are_shared_very_often(make, tmp_path):
  """Checks that time grows with the object graph, not with its square."""
  nodes = make(4000)
  first = {"chain_slots": [(1, "m", 2)]}.get(make.__name__, ())
  root = node([(f"o{i}", i + 1) for i in range(len(nodes) - 1)][:4002], first)
  if make is chain_slots:
    root = node([("w", 1)], first)
  path = str(tmp_path / "hostile")
  graph = Literal("string", root + b"".join(nodes))
  with writer.reserve(path) as new:
    new.write({"k": Literal("int64", 1), bundle.OBJECT_GRAPH: graph})
    new.publish()
  begin = time.process_time()
  for to in (None, "saver", "object", "fp32", "keras2"):
    with contextlib.suppress(checkpoint.CheckpointError):
      if to is None:
        checkpoint.describe(path)
      else:
        checkpoint.convert(path, tmp_path / to, to)
  assert time.process_time() - begin < 10


def test_a_template_of_another_model(tmp_path):
  """Checks that the error comes soon, and lists some variables of many."""
  layers = [f"net/layer_{i}/kernel" for i in range(1000)]
  nodes = [variable(f"other/{n}", f"k{i}") for i, n in enumerate(layers)]
  root = node([(f"a{i}", i + 1) for i in range(len(nodes))])
  graph = Literal("string", root + b"".join(nodes))
  for path, tensors in (
    (tmp_path / "source", dict.fromkeys(layers, Literal("float32", 1.0))),
    (
      tmp_path / "template",
      {f"k{i}": Literal("float32", 1.0) for i in range(len(layers))}
      | {bundle.OBJECT_GRAPH: graph},
    ),
  ):
    with writer.reserve(str(path)) as new:
      new.write(tensors)
      new.publish()
  begin = time.process_time()
  with pytest.raises(checkpoint.CheckpointError) as caught:
    checkpoint.convert(
      tmp_path / "source",
      tmp_path / "new",
      "object",
      template=tmp_path / "template",
    )
  assert time.process_time() - begin < 10
  assert "net/layer_0/kernel" in str(caught.value)
  assert "and 980 more" in str(caught.value)


def test_graphs_that_are_small_but_take_long(monkeypatch):
  """Checks functions with many arguments, and loops through all variables."""
  encode = wire.encode_field

  def op(name, kind, *inputs):
    fields = [encode(1, name), encode(2, kind)]
    return b"".join([*fields, *(encode(3, each) for each in inputs)])

  count = 1000
  monkeypatch.setattr(dataflow, "_MOST_INPUTS", count**2 // 2)
  argument = encode(1, "a")
  signature = encode(1, "f") + encode(2, argument)
  body = encode(3, op("n", "AddN", *["a"] * count))
  library = encode(2, encode(1, encode(1, signature) + body))
  calls = [encode(1, op("v", "VarHandleOp"))]
  calls += [encode(1, op(f"c{i}", "f", "v")) for i in range(count)]
  with pytest.raises(ValueError, match="too many inputs"):
    dataflow.DataFlow(parse_graph(library + b"".join(calls)))
  # Each op reads a variable, and depends on the op before.
  nodes = [op("v0", "VarHandleOp"), op("n0", "ReadVariableOp", "v0")]
  for i in range(1, 3000):
    nodes.append(op(f"v{i}", "VarHandleOp"))
    nodes.append(op(f"n{i}", "ReadVariableOp", f"v{i}", f"n{i - 1}"))
  nodes.append(op("set", "AssignVariableOp", "v0", "n2999"))
  flow = dataflow.DataFlow(
    parse_graph(b"".join(encode(1, each) for each in nodes))
  )
  begin = time.process_time()
  found = flow.find_dependents(flow.variables)
  assert time.process_time() - begin < 5
  assert found.of == {
    name: frozenset({"v0"} - {name}) for name in flow.variables
  }
  parts = "update_/" * 2000
  named = op(f"a/{parts}b", "AssignVariableOp", "v0", "n0")
  dataflow.DataFlow(
    parse_graph(b"".join(encode(1, each) for each in [*nodes[:2], named]))
  )
  assert time.process_time() - begin < 10


def test_loss_scales_that_were_not_saved(tmp_path):
  """Checks graphs that know more variables than the checkpoint has."""
  nodes = [
    node([("loss_scale", 1), ("base_optimizer", 3)]),
    node([("current_loss_scale", 2)]),
    variable("current_loss_scale", "not there"),
    node(),
  ]
  path = str(tmp_path / "hostile")
  with writer.reserve(path) as new:
    new.write({bundle.OBJECT_GRAPH: Literal("string", b"".join(nodes))})
    new.publish()
  with pytest.raises(checkpoint.CheckpointError, match="not there"):
    checkpoint.convert(path, tmp_path / "new", "object", reset=True)


if __name__ == "__main__":
  helpers.main()
