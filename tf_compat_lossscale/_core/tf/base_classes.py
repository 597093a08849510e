# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's base classes of public classes, declared for type checkers.

TensorFlow has no types. Checkers know nothing of a class with an unknown base:
its objects have every attribute and pass for anything. So they read what each
base class has from here. The private names are those that optimizers of
programs use.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import os
from typing import Any
from typing import TYPE_CHECKING

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf

if TYPE_CHECKING:

  class Trackable:
    def _track_trackable(
      self, trackable: Any, name: str, overwrite: bool = False
    ) -> Any: ...

    def _trackable_children(
      self, *args: Any, **kwargs: Any
    ) -> dict[str, Any]: ...

    def _lookup_dependency(
      self, name: str, *args: Any, **kwargs: Any
    ) -> Any: ...

    @property
    def _deferred_dependencies(self) -> dict[str, list[Any]]: ...

    def _handle_deferred_dependencies(
      self, name: str, trackable: Any
    ) -> None: ...

  class Optimizer(Trackable):
    GATE_NONE: int
    GATE_OP: int
    GATE_GRAPH: int

    _apply_dense: Any
    _apply_sparse: Any
    _apply_sparse_duplicate_indices: Any
    _assert_valid_dtypes: Any
    _call_if_callable: Any
    _create_non_slot_variable: Any
    _create_or_restore_slot_variable: Any
    _create_slots: Any
    _finish: Any
    _get_non_slot_variable: Any
    _get_or_make_slot: Any
    _get_or_make_slot_with_initializer: Any
    _name: Any
    _non_slot_variables: Any
    _prepare: Any
    _resource_apply_dense: Any
    _resource_apply_sparse: Any
    _resource_apply_sparse_duplicate_indices: Any
    _restore_slot_variable: Any
    _slot_dict: Any
    _slots: Any
    _use_locking: Any
    _valid_dtypes: Any
    _zeros_slot: Any

    def __init__(self, use_locking: bool, name: str) -> None: ...

    def minimize(
      self,
      loss: tf.Tensor | Callable[[], tf.Tensor],
      global_step: tf.Variable | None = None,
      var_list: Any = None,
      gate_gradients: int = 1,
      aggregation_method: int | None = None,
      colocate_gradients_with_ops: bool = False,
      name: str | None = None,
      grad_loss: tf.Tensor | None = None,
    ) -> tf.Operation | None: ...

    def compute_gradients(
      self,
      loss: tf.Tensor | Callable[[], tf.Tensor],
      var_list: Any = None,
      gate_gradients: int = 1,
      aggregation_method: int | None = None,
      colocate_gradients_with_ops: bool = False,
      grad_loss: tf.Tensor | None = None,
    ) -> list[tuple[Any, tf.Variable]]: ...

    def apply_gradients(
      self,
      grads_and_vars: Iterable[tuple[Any, Any]],
      global_step: tf.Variable | None = None,
      name: str | None = None,
    ) -> tf.Operation | None: ...

    def get_name(self) -> str: ...

    def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None: ...

    def get_slot_names(self) -> list[str]: ...

    def variables(self) -> list[tf.Variable]: ...

  class Saver:
    saver_def: Any

    def __init__(
      self,
      var_list: Mapping[str, Any] | Iterable[Any] | None = None,
      reshape: bool = False,
      sharded: bool = False,
      max_to_keep: int | None = 5,
      keep_checkpoint_every_n_hours: float = 10000.0,
      name: str | None = None,
      restore_sequentially: bool = False,
      saver_def: tf.compat.v1.train.SaverDef | None = None,
      builder: Any = None,
      defer_build: bool = False,
      allow_empty: bool = False,
      write_version: int = 2,
      pad_step_number: bool = False,
      save_relative_paths: bool = False,
      filename: Any = None,
    ) -> None: ...

    def save(
      self,
      sess: tf.compat.v1.Session,
      save_path: str | os.PathLike[str],
      global_step: Any = None,
      latest_filename: str | None = None,
      meta_graph_suffix: str = "meta",
      write_meta_graph: bool = True,
      write_state: bool = True,
      strip_default_attrs: bool = False,
      save_debug_info: bool = False,
    ) -> Any: ...

    def restore(
      self, sess: tf.compat.v1.Session, save_path: str | os.PathLike[str]
    ) -> None: ...

    def build(self) -> None: ...

    def as_saver_def(self) -> Any: ...

    def to_proto(self, export_scope: str | None = None) -> Any: ...

    @staticmethod
    def from_proto(saver_def: Any, import_scope: str | None = None) -> Any: ...

    def export_meta_graph(
      self,
      filename: str | None = None,
      collection_list: Iterable[str] | None = None,
      as_text: bool = False,
      export_scope: str | None = None,
      clear_devices: bool = False,
      clear_extraneous_savers: bool = False,
      strip_default_attrs: bool = False,
      save_debug_info: bool = False,
    ) -> Any: ...

    @property
    def last_checkpoints(self) -> list[str]: ...

    def set_last_checkpoints(self, last_checkpoints: list[str]) -> None: ...

    def set_last_checkpoints_with_time(
      self, last_checkpoints_with_time: list[tuple[str, float]]
    ) -> None: ...

    def recover_last_checkpoints(
      self, checkpoint_paths: Iterable[str]
    ) -> None: ...

  class Scaffold:
    def __init__(
      self,
      init_op: Any = None,
      init_feed_dict: Mapping[Any, Any] | None = None,
      init_fn: Callable[[Any, tf.compat.v1.Session], Any] | None = None,
      ready_op: Any = None,
      ready_for_local_init_op: Any = None,
      local_init_op: Any = None,
      summary_op: Any = None,
      saver: Any = None,
      copy_from_scaffold: tf.compat.v1.train.Scaffold | None = None,
      local_init_feed_dict: Mapping[Any, Any] | None = None,
    ) -> None: ...

    def finalize(self) -> Any: ...

    @staticmethod
    def get_or_default(
      arg_name: str,
      collection_key: str,
      default_constructor: Callable[[], Any],
    ) -> Any: ...

    @staticmethod
    def default_local_init_op() -> Any: ...

    @property
    def init_feed_dict(self) -> Any: ...

    @property
    def init_fn(self) -> Any: ...

    @property
    def init_op(self) -> Any: ...

    @property
    def local_init_feed_dict(self) -> Any: ...

    @property
    def local_init_op(self) -> Any: ...

    @property
    def ready_for_local_init_op(self) -> Any: ...

    @property
    def ready_op(self) -> Any: ...

    @property
    def saver(self) -> Any: ...

    @property
    def summary_op(self) -> Any: ...

  class SessionRunHook:
    def begin(self) -> None: ...

    def after_create_session(
      self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None: ...

    def before_run(
      self, run_context: tf.compat.v1.train.SessionRunContext
    ) -> Any: ...

    def after_run(
      self,
      run_context: tf.compat.v1.train.SessionRunContext,
      run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None: ...

    def end(self, session: tf.compat.v1.Session) -> None: ...

else:
  Optimizer = tf.compat.v1.train.Optimizer
  Saver = tf.compat.v1.train.Saver
  Scaffold = tf.compat.v1.train.Scaffold
  SessionRunHook = tf.compat.v1.train.SessionRunHook
  # It has a name in `tf.__internal__` in every supported release.
  Trackable = tf.__internal__.tracking.Trackable
