"""The rules of the house that a program can check."""

import ast
import inspect
import json
import re
import shutil
import subprocess
import typing

import helpers
import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import contrib
from tf_compat_lossscale import gradients
from tf_compat_lossscale import graph_rewrite

_PACKAGE = helpers.ROOT / "tf_compat_lossscale"
_MODULES = sorted(_PACKAGE.rglob("*.py"))

# A module imports only modules of lower floors.
_FLOORS = {
  "_version": 0,
  "_tf": 0,
  "_arguments": 0,
  "_imports": 0,
  "legacy_names": 1,
  "which_keras": 1,
  "gradients": 1,
  "graph_weights": 1,
  "loss_scale": 2,
  "loss_scale_optimizer": 3,
  "contrib": 4,
  "graph_rewrite": 4,
  "keras_scales": 3,
  "keras3_names": 4,
  "keras._reloading": 0,
  "keras._keras2": 3,
  "keras._kinds": 4,
  "keras._skipped_steps": 4,
  "keras._keras2_state": 5,
  "keras._like_keras3": 4,
  "keras.keras3_optimizer": 4,
  "keras._slots_to_keras3": 6,
  "keras._to_keras3": 7,
  "keras.optimizer": 5,
  "keras.policy": 6,
  "keras._saved_models": 6,
  "keras.models": 7,
  "keras.__init__": 8,
  "legacy_modules": 6,
  "legacy_sources": 5,
  "tensorflow1": 7,
  "_rewriter": 6,
  "source_edits": 7,
  "launcher": 7,
  "checkpoint._errors": 0,
  "checkpoint._wire": 0,
  "checkpoint._crc32c": 0,
  "checkpoint._table": 1,
  "checkpoint._tensorflow_reader": 1,
  "checkpoint.object_graph": 1,
  "checkpoint._saver_keys": 2,
  "checkpoint.bundle": 2,
  "checkpoint._consistency": 3,
  "checkpoint.report": 1,
  "checkpoint.names": 3,
  "checkpoint.description": 3,
  "checkpoint.writing": 3,
  "checkpoint._graph_def": 1,
  "checkpoint._dataflow": 2,
  "checkpoint._meta_graph": 4,
  "checkpoint._pairing": 3,
  "checkpoint._keras_files": 4,
  "checkpoint.printing": 4,
  "checkpoint.paths": 4,
  "checkpoint.layouts": 4,
  "checkpoint.describing": 8,
  "checkpoint.evidence": 5,
  "checkpoint.side": 7,
  "checkpoint.targets": 7,
  "checkpoint.matching": 8,
  "checkpoint._renaming": 8,
  "checkpoint._template_places": 8,
  "checkpoint._object_bridges": 6,
  "checkpoint._object_layouts": 9,
  "checkpoint.converting": 10,
  "checkpoint._restoring_objects": 7,
  "checkpoint._restoring_models": 9,
  "checkpoint.restoring": 10,
  "checkpoint.saver": 11,
  "checkpoint.__init__": 12,
  "__init__": 8,
  "cli": 13,
  "__main__": 14,
  "sitecustomize": 14,
}


def floor_of(name):
  """The floor of a dotted name: a module's, or that of what it is in."""
  while name and name not in _FLOORS:
    name = name.rpartition(".")[0]
  # A package is its own floor only where its `__init__` is meant.
  return _FLOORS.get(name)


def name_of(path):
  """The dotted name of a module within the package."""
  if path.stem == "sitecustomize":
    return path.stem
  return ".".join(path.relative_to(_PACKAGE).with_suffix("").parts)


@pytest.mark.parametrize("path", _MODULES, ids=name_of)
def test_floors(path):
  prefix = "tf_compat_lossscale."
  for name in helpers.imports(path):
    if name.startswith(prefix):
      module = name[len(prefix) :]
      floor = floor_of(module)
      if floor is None:  # The names that a wing itself exports.
        wing = module.split(".")[0]
        assert wing in ("checkpoint", "keras"), name
        floor = _FLOORS[f"{wing}.__init__"]
      assert floor < _FLOORS[name_of(path)], name


@pytest.mark.parametrize("path", _MODULES, ids=name_of)
def test_one_door(path):
  for name in helpers.imports(path):
    if path.name != "_tf.py":
      assert not name.startswith("tensorflow.python"), name
    assert "training.experimental.loss_scale" not in name
    assert "keras" not in name.split(".")[0]
    assert not name.startswith("tensorflow.keras")


@pytest.mark.parametrize("path", _MODULES, ids=name_of)
def test_modules_are_short_and_say_what_they_are(path):
  source = path.read_text("utf-8")
  assert len(source.splitlines()) <= 400
  assert ast.get_docstring(ast.parse(source))


def public_functions():
  for owner in (tfl, checkpoint, contrib, gradients, graph_rewrite):
    for name in dir(owner):
      value = getattr(owner, name)
      if name.startswith("_"):
        continue
      if inspect.isclass(value) and value.__module__.startswith(tfl.__name__):
        for method_name, method in vars(value).items():
          if inspect.isfunction(method) and not method_name.startswith("__"):
            yield f"{name}.{method_name}", method
      elif inspect.isfunction(value):
        yield name, value


@pytest.mark.parametrize(
  "function", [pytest.param(f, id=name) for name, f in public_functions()]
)
def test_signatures_are_typed_and_documented(function):
  parameters = [
    p
    for name, p in inspect.signature(function).parameters.items()
    if name != "self"
  ]
  for parameter in parameters:
    assert parameter.annotation is not inspect.Parameter.empty, parameter
  assert "return" in function.__annotations__
  trivial = {"get_config", "update"}  # The base class says it.
  assert function.__doc__ or function.__name__ in trivial


def test_type_marker_is_packaged():
  assert (_PACKAGE / "py.typed").exists()
  assert typing.get_type_hints(tfl.get)["return"]


def modules_added_by(statement, after=""):
  """The modules that a statement loads, after another one."""
  code = f"""
import json, sys
{after}
before = set(sys.modules)
{statement}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
  return json.loads(helpers.run_python("-c", code).splitlines()[-1])


def test_names_bring_no_keras_and_little_else():
  added = modules_added_by(
    "from tf_compat_lossscale import *", after="import tensorflow"
  )
  assert "tf_compat_lossscale.graph_rewrite" in added
  assert not [name for name in added if name.startswith(("keras", "tf_keras"))]
  assert "tf_compat_lossscale.cli" not in added
  for name in added:
    assert name.startswith(("tf_compat_lossscale", "tensorflow")), name


def test_the_package_alone_and_the_command_line_need_no_tensorflow():
  for statement in (
    "import tf_compat_lossscale",
    "import tf_compat_lossscale.cli",
  ):
    added = modules_added_by(statement)
    assert not [name for name in added if name.startswith("tensorflow")]


def test_names_are_loaded_when_used():
  assert set(tfl.__all__) <= set(dir(tfl))
  for name in tfl.__all__:
    assert getattr(tfl, name) is not None
  assert tfl.loss_scale.get is tfl.get
  with pytest.raises(AttributeError, match="LossScales"):
    tfl.LossScales  # noqa: B018


# An absolute path of one machine: in a folder for users, for temporary files or
# for a system's additions, or on a drive of Windows. A path that the shell or
# the program completes (such as a variable after the folder) is not one. This
# text is written so that it does not match itself.
_MACHINE_PATH = re.compile(
  r"(?<![\w.~$})*-])"
  r"/(?:home|Users|root|tmp|var/(?:folders|tmp)|private|work|workspace|builds|"
  r"mnt|media|Volumes|scratch|data|srv|opt)/[\w.]"
  r"|(?<!\w)[A-Z]:(?:/|\\\\|\\(?![nrt]))\w"
)


def text_files_of_the_project():
  """Yields (path, text) of the text files that git tracks."""
  if not (helpers.ROOT / ".git").exists():
    pytest.skip("this is no git checkout, so nothing says what is tracked")
  if shutil.which("git") is None:
    pytest.skip("git is not installed")
  listed = subprocess.run(
    # A container may give the checkout to another user than the tests'.
    ["git", "-c", "safe.directory=*", "ls-files", "-z"],
    capture_output=True,
    check=True,
    cwd=helpers.ROOT,
  )
  for name in listed.stdout.decode("utf-8").split("\0"):
    path = helpers.ROOT / name
    if path.is_file():
      data = path.read_bytes()
      if b"\0" not in data:
        yield path, data.decode("utf-8", "replace")


@pytest.mark.any_release
def test_no_file_names_a_folder_of_one_machine():
  files = list(text_files_of_the_project())
  found = [
    f"{path.relative_to(helpers.ROOT)}:{number}: {line.strip()[:100]}"
    for path, text in files
    for number, line in enumerate(text.splitlines(), 1)
    if _MACHINE_PATH.search(line)
  ]
  assert not found, "name a path relatively, or as /path/to/it"
  assert len(files) > 100


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("line", "refused"),
  [
    # The first character apart: this file is read, too.
    ("/" + "tmp/models/model.ckpt-1", True),
    ('model_checkpoint_path: "/' + 'home/me/train"', True),
    ("cd /" + "root/.cache", True),
    ("file:///" + "Users/me/x", True),
    ("C" + ":\\Users\\me", True),
    ('"D' + ':\\\\temp\\\\x"', True),
    ("#!/usr/bin/env bash", False),
    (">/dev/null 2>&1; cat /proc/self/status", False),
    ("/job:worker/replica:0/device:CPU:0", False),
    ("https://example.org/home/page ~/work/x ./tmp/x */data/x", False),
    ("mount -t tmpfs none /tmp; ls /tmp/$USER ${x}/tmp/y", False),
    ("//third_party:tensorflow /path/to/model.ckpt", False),
    (r"class C:\n  pass", False),
  ],
)
def test_what_a_folder_of_one_machine_is(line, refused):
  assert bool(_MACHINE_PATH.search(line)) == refused


if __name__ == "__main__":
  helpers.main()
