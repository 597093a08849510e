# SPDX-License-Identifier: Apache-2.0
"""Tests that a table has a reason for each private name that is used."""

import ast

import helpers
import pytest

pytestmark = pytest.mark.any_release

_PACKAGES = [helpers.ROOT / "tf_compat_lossscale", helpers.ROOT / "tf1_contrib"]

# Names with an underscore that Python documents as public.
_PYTHONS = {"_asdict", "_exit", "_fields", "_make", "_replace"}

_OWN = "an attribute of this package's own class, without a public name yet"

# Module or wing -> private names of foreign objects -> the reason of their use.
# Uses of Keras 2's names belong in `keras._keras2` and uses of TensorFlow's in
# `_core.tf`: move a use there rather than add a row for another wing.
_USES = {
  "_core.horovod": {
    "_agg_helper": "what adds up the gradients of Horovod's passes",
    "_backward_passes_per_step": "the passes of Horovod's Adasum",
  },
  "accumulation": {
    "_create_non_slot_variable": "makes the number of micro-batches",
    "_get_non_slot_variable": "finds the number of micro-batches",
    "_get_or_make_slot_with_initializer": "makes a sum in float32",
    "_loss_scale": _OWN,
    "_optimizer": _OWN,
  },
  "_core.tf.control_flow": {
    "_external_values": "CondContext's table of tensors that have a Switch",
    "_get_control_flow_context": "the v1 cond or loop that is being built",
    "_add_control_input": "a control input that leaves no mark on the other op",
    "_values": "CondContext's set of names of tensors in the branch",
  },
  "_core.tf.estimator_training": {
    "_cluster_spec": "RunConfig's cluster",
    "_config": "an Estimator's RunConfig; `config` is a copy",
    "_distribute_coordinator_mode": "RunConfig's mode of the coordinator",
    "_evaluation_master": "RunConfig's address of the evaluator's session",
    "_experimental_distribute": "RunConfig's DistributeConfig",
    "_global_id_in_cluster": "RunConfig's position among the tasks",
    "_init_distributed_setting_from_environment_var": "reads TF_CONFIG",
    "_is_chief": "RunConfig's chief",
    "_master": "RunConfig's address of the session",
    "_maybe_overwrite_session_config_for_distributed_training": (
      "changes RunConfig's ConfigProto"
    ),
    "_num_ps_replicas": "RunConfig's number of parameter servers",
    "_num_worker_replicas": "RunConfig's number of workers",
    "_service": "RunConfig's name of the service",
    "_start_continuous_evaluation": "evaluates each new checkpoint",
    "_task_id": "RunConfig's task",
    "_task_type": "RunConfig's kind of task",
    "_train_distribute": "RunConfig's strategy of training",
  },
  "_core.tf.optimizers": {
    "_create_slots": "creates the slots of a copy of an optimizer",
    "_non_slot_dict": "an optimizer's variables that are no slots",
    "_in_graph_mode": "tells a variable of a graph from an eager one",
    "_self_unconditional_deferred_dependencies": "a copy must wait for nothing",
    "_slots": "an optimizer's slots",
    "_use_locking": "the wrapper passes on the wrapped optimizer's setting",
  },
  "_core.tf.private_names": {
    "_var_list": "the variables of tf.compat.v1.train.Saver",
  },
  "_core.tf.tracking": {
    "_get_save_slice_info": "which part of a partitioned variable this is",
    "_getframe": "tells TensorFlow 2.12's writer of checkpoints from a program",
    "_handle_deferred_dependencies": "restores variables that come later",
    "_track_trackable": "names a child that is no attribute of a tf.Module",
  },
  "keras._keras2": {
    "_built": "whether a newer optimizer has its slots",
    "_coalesced_children": "what a newer optimizer lists for a checkpoint",
    "_DynamicLossScaleState": "Keras's class of a dynamic loss scale",
    "_GLOBAL_CUSTOM_NAMES": "Keras's table of registered names",
    "_create_all_weights": "creates an optimizer's weights before training",
    "_dtype_policy": "a layer's policy",
    "_index_dict": "where a newer optimizer has a variable's slots",
    "_hyper": "hyperparameters of a legacy optimizer",
    "_learning_rate": "the learning rate before it is a tensor",
    "_serialized_attributes": "what a SavedModel holds of a model",
    "_slots": "a legacy optimizer's slots",
    "_u_product_counter": "how often Nadam's product was computed",
    "_var_key": "the key of a variable's slots",
  },
  "keras.optimizer_states": {
    "_trainable_variables": "the weights of the slots of Keras 3's optimizers",
  },
  "programs.import_hooks": {
    "_getframe": "tells `find_spec` and `from a import b` from `import a.b`",
  },
  "programs.lazy_modules": {
    "_getframe": "tells which module asks for a name, and is told accordingly",
  },
  "programs.old_methods": {
    "_SEED_GENERATOR": "seeds the initializers of Keras 2",
  },
  # What subclasses of `tf.train.Optimizer` inherit. TensorFlow documents these
  # names for subclasses, and has no public ones.
  "tf1_contrib": {
    "_beta1_t": "AdamOptimizer's rate of decay, as a tensor",
    "_beta2_t": "AdamOptimizer's rate of decay, as a tensor",
    "_epsilon_t": "AdamOptimizer's epsilon, as a tensor",
    "_get_beta_accumulators": "AdamOptimizer's powers of the rates of decay",
    "_lr_t": "AdamOptimizer's learning rate, as a tensor",
    "_set_device": "moves an op of Python to the CPU",
    "_zeros_slot": "makes a slot of zeros",
  },
  # Uses outside of those modules.
  "keras": {
    "_track_trackable": "names a child as the checkpoints of old releases do",
  },
}


def name_of(path):
  """Returns the dotted name of a module, without that of the package."""
  name = ".".join(path.relative_to(helpers.ROOT).with_suffix("").parts)
  return name.removeprefix("tf_compat_lossscale.")


def is_name(node, *names):
  """Returns whether a node is a variable of one of these names."""
  return isinstance(node, ast.Name) and node.id in names


def is_private(name):
  """Returns whether a name is private: not `__name__`, not in `_PYTHONS`."""
  is_dunder = name.startswith("__") and name.endswith("__")
  return name.startswith("_") and not is_dunder and name not in {"_", *_PYTHONS}


def parse(source):
  """Returns the tree of a module, without what only type checkers read."""
  tree = ast.parse(source)
  for node in ast.walk(tree):
    if isinstance(node, ast.If) and is_name(node.test, "TYPE_CHECKING"):
      node.body = [ast.Pass()]
  return tree


def defined_names(tree):
  """Returns the names that a module defines or sets on its own objects."""
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
      names.add(node.name)
    elif isinstance(node, ast.alias):
      names.add(node.asname or node.name)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      names.add(node.id)
    elif (
      isinstance(node, ast.Attribute)
      and isinstance(node.ctx, ast.Store)
      and is_name(node.value, "self", "cls")
    ):
      names.add(node.attr)
  return names


def used_names(tree):
  """Yields the private names that a module uses as attributes.

  Yields:
    Pairs of the name and whether its object is `self`, `cls` or `super()`.
  """
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute):
      owner, name = node.value, node.attr
    elif (
      isinstance(node, ast.Call)
      and is_name(node.func, "getattr", "hasattr", "setattr", "delattr")
      and isinstance(node.args[1], ast.Constant)
    ):
      owner, name = node.args[0], node.args[1].value
    else:
      continue
    if is_private(name):
      yield name, ast.unparse(owner) in ("self", "cls", "super()")


def foreign_names(sources):
  """Returns the private names that modules use and do not define.

  Args:
    sources: The text of each module of the package.

  Returns:
    Module -> the private names that the module uses but does not define. A name
    on `self`, `cls` or `super()` is left out if any other module defines it.
  """
  trees = {module: parse(source) for module, source in sources.items()}
  defined = {module: defined_names(tree) for module, tree in trees.items()}
  everything = set().union(*defined.values())
  return {
    module: {
      name
      for name, is_own in used_names(tree)
      if name not in (everything if is_own else defined[module])
    }
    for module, tree in trees.items()
  }


@pytest.fixture(scope="module")
def uses():
  """Returns the foreign private names of every module."""
  return foreign_names(
    {
      name_of(path): path.read_text("utf-8")
      for package in _PACKAGES
      for path in sorted(package.rglob("*.py"))
    }
  )


def rows_of(module):
  """Yields the keys of `_USES` that apply to a module."""
  for place in _USES:
    if f"{module}.".startswith(f"{place}."):
      yield place


def test_each_use_is_listed(uses):
  unlisted = {
    f"{module}: {name}"
    for module, names in uses.items()
    for name in names
    if not any(name in _USES[place] for place in rows_of(module))
  }
  assert not unlisted, "use a public name, or move the use behind the door"


def test_each_row_is_used(uses):
  used = {
    (place, name)
    for module, names in uses.items()
    for place in rows_of(module)
    for name in names
  }
  stale = {(p, name) for p, names in _USES.items() for name in names} - used
  assert not stale, "remove the row"


@pytest.mark.parametrize(
  ("source", "expected"),
  [
    ("op._inputs", {"_inputs"}),
    ("getattr(op, '_inputs', None)", {"_inputs"}),
    ("hasattr(op, name)", set()),
    ("self._tracked()", {"_tracked"}),
    ("super()._tracked()", {"_tracked"}),
    ("self._elsewhere()", set()),
    ("other._elsewhere()", {"_elsewhere"}),
    ("class A:\n  def _f(self): pass\n\ndef g(a): a._f()", set()),
    ("class A:\n  def f(self): self._x = 1\n\ndef g(a): a._x", set()),
    ("def g(a): a._x = 1", {"_x"}),
    ("from package import module as _module\n\n_module.name", set()),
    ("op.__class__, record._replace()", set()),
    ("if TYPE_CHECKING:\n  def _x(a): ...\n\nself._x", {"_x"}),
  ],
)
def test_which_names_are_foreign(source, expected):
  others = "class B:\n  def _elsewhere(self): pass"
  assert foreign_names({"a": source, "b": others})["a"] == expected


if __name__ == "__main__":
  helpers.main()
