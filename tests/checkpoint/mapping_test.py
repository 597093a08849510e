# SPDX-License-Identifier: Apache-2.0
"""Tests restores and conversions with a mapping from the user."""

import ast
import re
import shlex

import helpers
import numpy as np
import pytest
import role_programs
from role_programs import GAN
from role_programs import get_program
from role_programs import restore_program
from role_programs import save_program
from saved_graphs import save_tensors
from saved_graphs import variable
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1
_folder_of_programs = role_programs.folder_of_programs
NUMBERS = [("s10", "dynamic"), ("s2", "dynamic")]


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("there", "here", "v2"),
  [
    ([("", "dynamic")] * 3, [("", "dynamic")] * 3, False),
    # To a program in v2, numbers do not show the order within a scope.
    ([("", "dynamic")] * 3, [("", "dynamic")] * 3, True),
    ([("net/", "dynamic")] * 3, [("net/", "dynamic")] * 3, True),
    # These have a count more.
    ([("", "dynamic")] * 2, [("", "contrib")] * 2, True),
    # The scopes of powers are lost in v2, but those of loss scales are not.
    (GAN, GAN, False),
    (GAN, GAN, True),
    ([*GAN, ("net", "plain")], [*GAN, ("net", "plain")], False),
  ],
)
def test_the_mapping_of_an_error_can_be_pasted(there, here, v2, tmp_path):
  """Checks that its pairs are right if the order of creation is the same."""
  path, values = save_program(tmp_path, there, v2)
  with pytest.raises(checkpoint.CheckpointError) as error:
    restore_program(path, here, not v2)
  text = str(error.value)
  assert "\n" not in text and "same_order=True (--same-order)" in text
  mapping = ast.literal_eval(re.search(r"mapping=(\{.*?\})", text)[1])
  for wishes in ({"mapping": mapping}, {"same_order": True}):
    found, _ = restore_program(path, here, not v2, **wishes)
    assert found.items() >= values.items()
    assert all(found[role] == 0 for role in found.keys() - values.keys())
  words = shlex.split(text[text.index("--map") : text.index("; that is")])
  named = [f"{a}={b}" for a, b in mapping.items() if b]
  assert words[::2] == ["--map"] * len(named) and words[1::2] == named


@pytest.mark.any_release
@pytest.mark.parametrize("same_order", [False, True])
def test_names_do_not_show_an_order_across_scopes(same_order, tmp_path):
  path, values = save_program(tmp_path, GAN, False)
  here = [("", "dynamic")] * 2
  with pytest.raises(checkpoint.CheckpointError) as error:
    restore_program(path, here, True, same_order=same_order)
  assert "'beta1_power': ..." in str(error.value)
  assert "names do not show the order" in str(error.value)
  mapping = {}
  for i, (scope, _) in enumerate(GAN):
    for power in ("beta1_power", "beta2_power"):
      assert f"{scope}/cond_1/{power}" in str(error.value)
      mapping[power + "_1" * i] = f"{scope}/cond_1/{power}"
    mapping["good_steps" + "_1" * i] = f"{scope}/good_steps"
  found, report = restore_program(path, here, True, mapping=mapping)
  assert found == values
  assert "mapping" in report.proofs["beta1_power_1"]


@pytest.mark.any_release
@pytest.mark.parametrize("there", [["", "gen"], ["gen", ""]])
def test_a_lost_scope_is_not_the_root(there, tmp_path):
  """Checks that powers of `gen`, at the root in v2, are not the root's."""
  path, saved = save_program(tmp_path, [(x, "dynamic") for x in there], False)
  here, wishes = [("gen", "dynamic")], {"missing": "initialize"}
  with pytest.raises(checkpoint.CheckpointError, match="for beta1_power"):
    restore_program(path, here, True, **wishes)
  found, _ = restore_program(path, here, True, same_order=True, **wishes)
  number = there.index("gen")
  for use in ("beta1", "beta2", "loss_scale"):
    assert found[0, use] == saved[number, use]


_COND = [("", "dynamic"), ("cond/", "plain")]
_PLAIN = [("", "plain"), ("gen/", "plain"), ("cond/", "plain")]
_DYNAMIC = [(scope, "dynamic") for scope, _ in _PLAIN]


@pytest.mark.any_release
@pytest.mark.parametrize("same_order", [False, True])
@pytest.mark.parametrize(
  ("there", "here", "v2"),
  [
    # A cond inside a scope that is called so, and a loss scale.
    ([("cond/", "dynamic"), ("", "contrib")], [("cond/", "plain")], False),
    (_PLAIN, _DYNAMIC, False),
    # More conds than loss scales: there, and here.
    (_COND, _COND, True),
    (
      [("", "dynamic"), ("", "plain")],
      [("", "plain"), ("cond/", "plain")],
      False,
    ),
  ],
)
def test_a_scope_called_cond(there, here, v2, same_order, tmp_path):
  """Checks that no mapping is guessed: such a scope is taken for a cond."""
  path, _ = save_program(tmp_path, there, False)
  here = [*here, ("", "plain")][: len(there)]
  with pytest.raises(checkpoint.CheckpointError) as error:
    restore_program(path, here, v2, same_order=same_order)
  assert "beta1_power': ..." in str(error.value)
  assert "names do not show the order" in str(error.value)


@pytest.mark.any_release
@pytest.mark.parametrize("same_order", [False, True])
def test_variables_named_like_several_loss_scales(same_order, tmp_path):
  kinds = ["dynamic", "contrib"]
  programs = [
    role_programs.Program(
      lambda listed=listed: role_programs.build(
        [("momentum", "", kind) for kind in listed], users="after"
      ),
      False,
    )
    for listed in (kinds, kinds[::-1])
  ]
  path, _ = programs[0].save(tmp_path)
  with pytest.raises(checkpoint.CheckpointError) as error:
    programs[1].restore(path, same_order=same_order)
  assert "'good_steps': ..." in str(error.value)


@pytest.mark.any_release
def test_one_of_several_scopes(tmp_path):
  path, values = save_program(tmp_path, GAN, False)
  for kind in ("dynamic", "none"):
    found, _ = restore_program(path, [("train_gen", kind)], False)
    assert found == {role: values[role] for role in found}
  with pytest.raises(checkpoint.CheckpointError, match="names do not tell"):
    restore_program(path, [("", "dynamic")], True)


def test_a_loss_scale_of_another_system(tmp_path):
  """Checks a scale without a name, float32 masters and their slots."""
  master = "optim/FP32-master-copy/w"
  values = {"w": np.float16([1.0]), master: [1.0001]}
  values |= {f"optim/{master}/Momentum": [0.25], "optim/Variable_2": 4096.0}
  path = save_tensors(tmp_path, values)
  with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable("w", [1])
    momentum = tf1.train.MomentumOptimizer(0.1, 0.9)
    scale = tfl.DynamicLossScale(2.0)
    tfl.MixedPrecisionLossScaleOptimizer(momentum, scale).minimize(w * w)
    mapping = {"current_loss_scale": "optim/Variable_2", "good_steps": None}
    mapping |= {"w": master, "w/Momentum": f"optim/{master}/Momentum"}
    report = checkpoint.restore(session, path, mapping=mapping)
    slot = momentum.get_slot(w, "momentum")
    values = [float(v) for v in session.run([scale(), w[0], slot[0]])]
  assert values == [4096.0, pytest.approx(1.0001), 0.25]
  assert set(report.initialized) == {"good_steps"} and not report.kept


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("mapping", "parts", "what"),
  [
    ({"w": "w0"}, "all", "'w'.*nearest: .*no variable"),
    ({"w0": "v0"}, "all", "'v0'.*not in the checkpoint"),
    ([("a", "b")], "all", "mapping must be a dict from"),
    ([], "all", "mapping must be a dict from"),
    ("ab", "all", "mapping must be a dict from"),
    ({"a": 1}, "all", "mapping must be a dict from"),
    *(
      ({name: key}, parts, f"names '{name}', which what='{parts}' leaves out")
      for key in ("beta2_power", None)
      for parts, name in (
        ("weights", "current_loss_scale"),
        ("weights", "beta1_power"),
        ("all_but_optimizer", "beta1_power"),
      )
    ),
  ],
)
def test_mistakes(mapping, parts, what, tmp_path):
  path, _ = save_program(tmp_path, [("", "dynamic")], True)
  program = get_program([("", "dynamic")], True)
  with pytest.raises(ValueError, match=what):
    program.restore(path, what=parts, mapping=mapping)


@pytest.mark.parametrize(
  ("optimizers", "v2"), [(GAN, False), (GAN[:1], False), (GAN[:1], True)]
)
def test_some_variables_of_an_optimizer(optimizers, v2, tmp_path):
  """Checks restores of some variables: the others have a claim, too."""
  path, values = save_program(tmp_path, optimizers, False)
  program = get_program(optimizers, v2)
  for wanted in (["loss_scale"], ["good_steps"], ["beta2"], ["w", "beta1"]):
    chosen = {
      role: variable
      for role, variable in program.variables.items()
      if role[1] in wanted
    }
    found, _ = program.restore(path, variables=[*chosen.values()])
    for role, value in found.items():
      assert value == (values[role] if role in chosen else -1), role
  path, _ = save_program(tmp_path, [("", "dynamic")] * 2, False)
  program = get_program([("", "dynamic")] * 2, True)
  with pytest.raises(checkpoint.CheckpointError, match="names do not tell"):
    program.restore(path, variables=[program.variables[0, "beta1"]])


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("name", "roles"),
  [
    ("good_steps", ("loss_scale", "good_steps")),
    ("beta1_power", ("beta1", "beta2")),
  ],
)
def test_a_mapping_against_the_names(name, roles, tmp_path):
  """Checks that it decides, also about the rest of both optimizers."""
  optimizers = [("", "dynamic")] * 2
  path, values = save_program(tmp_path, optimizers, True)
  found, _ = restore_program(
    path, optimizers, True, mapping={name: f"{name}_1"}
  )
  for i in range(2):
    for role in roles:
      assert found[i, role] == values[1 - i, role]


@pytest.mark.any_release
def test_a_mapping_to_none_initializes(tmp_path):
  path, _ = save_program(tmp_path, [("", "dynamic")], False)
  found, report = restore_program(
    path, [("", "dynamic")], False, mapping={"good_steps": None}
  )
  assert found[0, "good_steps"] == 0
  assert list(report.initialized) == ["good_steps"]
  found, report = restore_program(
    path, [("", "dynamic")], False, mapping={"current_loss_scale": None}
  )
  assert (found[0, "loss_scale"], found[0, "good_steps"]) == (2**15, 0)


@pytest.mark.any_release
def test_the_command_line_maps(tmp_path, capsys):
  path, _ = save_program(tmp_path, NUMBERS, False, meta=False)
  new = str(tmp_path / "new")
  command = ["convert", path, new, "--to=saver-v2"]
  with pytest.raises(SystemExit) as exit_:
    cli.main(command)
  assert exit_.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert "--map beta1_power=" in line and "s10/cond_1/beta1_power" in line
  for power in ("beta1_power", "beta2_power"):
    command += [f"--map={power}=s10/cond_1/{power}"]
    command += [f"--map={power}_1=s2/cond_1/{power}"]
  assert cli.main(command) == 0
  reader, old = tf.train.load_checkpoint(new), tf.train.load_checkpoint(path)
  assert reader.get_tensor("beta2_power_1") == old.get_tensor(
    "s2/cond_1/beta2_power"
  )


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("name", "text"),
  [
    ("a=b", r"a\=b"),
    ("a\\=\\", "a\\\\\\=\\\\"),
    ("a\nb\t", r"a\nb\t"),
    ("\0", r"\x00"),
    ("a: b ü", "a: b ü"),
    ("€", r"\u20ac"),
  ],
)
def test_names_that_need_escapes(name, text, tmp_path):
  """Checks names as `inspect --keys` prints them, and with '='."""
  old = save_tensors(tmp_path, {name: 7.0, "b=": 8.0})
  new = str(tmp_path / "new")
  command = ["convert", old, new, "--to=saver"]
  command += [rf"--map=b\=={text}", rf"--map={text}=b\="]
  assert cli.main(command) == 0
  made = Checkpoint(new)
  assert made.read_scalar("b=") == 7 and made.read_scalar(name) == 8


@pytest.mark.any_release
def test_variables_of_other_kinds(tmp_path):
  path, _ = save_program(tmp_path, GAN, False)
  for variables in (tf.Variable([1.0]), {"w0": 1.0}):
    with pytest.raises(ValueError, match="variables must be a list of"):
      checkpoint.restore(None, path, variables=variables)


def _build_shared(betas):
  """Builds a weight that Adams with these betas train; returns its slots."""
  w = tf1.get_variable("w", [1], use_resource=True)
  found = []
  for beta in betas:
    adam = tf1.train.AdamOptimizer(0.1, beta1=beta)
    opt = tfl.MixedPrecisionLossScaleOptimizer(adam, tfl.DynamicLossScale())
    opt.minimize(tf.reduce_sum(w * w), var_list=[w])
    found += [adam.get_slot(w, "m"), adam._get_beta_accumulators()[0]]
  return found


@pytest.mark.any_release
@pytest.mark.parametrize("v2", [False, True])
def test_optimizers_that_change_places(v2, tmp_path):
  """Checks slots of a weight that both train: the error has all to paste."""
  with tf.Graph().as_default(), tf1.Session() as session:
    with helpers.control_flow(False):
      there = _build_shared([0.9, 0.8])
    session.run(tf1.global_variables_initializer())
    session.run(tf1.assign(there[0], [1.0]))
    session.run(tf1.assign(there[2], [2.0]))
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
    (note,) = checkpoint.restore(session, path).notes
    assert note.startswith("several optimizers called Adam train w, ")
    assert not checkpoint.restore(session, path, same_order=True).notes
  with tf.Graph().as_default(), tf1.Session() as session:
    with helpers.control_flow(v2):
      here = _build_shared([0.8, 0.9])
    mapping = {}
    why = "right if each power is" if v2 else "fits by the values"
    for what in (why, "give these, too"):
      with pytest.raises(checkpoint.CheckpointError, match=what) as error:
        checkpoint.restore(session, path, mapping=mapping)
      text = re.search(r"mapping=(\{.*?\})", str(error.value))[1]
      mapping |= ast.literal_eval(text)
    checkpoint.restore(session, path, mapping=mapping)
    values = [float(np.ravel(v)[0]) for v in session.run(here)]
  assert values == pytest.approx([2.0, 0.8, 1.0, 0.9])
  with pytest.raises(checkpoint.CheckpointError, match="give these, too"):
    powers = {n: k for n, k in mapping.items() if "power" in n}
    checkpoint.convert(path, tmp_path / "new", "saver", mapping=powers)


@pytest.mark.any_release
def test_slots_that_no_table_knows(tmp_path):
  listed = ["w", "w/Odd", "w/Odd_1", "beta1_power", "beta1_power_1"]
  path = save_tensors(tmp_path, dict.fromkeys(listed, 0.5))
  with tf.Graph().as_default(), tf1.Session() as session:
    for name in listed:
      variable(name, 0.5)
    mapping = dict(zip(listed[-2:], listed[:-3:-1]))
    with pytest.raises(checkpoint.CheckpointError, match="give these, too"):
      checkpoint.restore(session, path, mapping=mapping)


@pytest.mark.any_release
@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("kinds", [("dynamic", "plain"), ("dynamic",) * 2])
def test_a_loss_scale_of_one_of_two(kinds, v2, tmp_path):
  """Checks the mapping if the first optimizer alone had a loss scale."""
  there = [("", kind) for kind in kinds]
  here = [("", "dynamic"), ("", {"plain": "dynamic"}.get(kinds[1], "plain"))]
  path, values = save_program(tmp_path, there, v2)
  with pytest.raises(checkpoint.CheckpointError) as error:
    restore_program(path, here, v2)
  text = re.search(r"mapping=(\{.*?\})", str(error.value))[1]
  assert "with a loss scale on both sides" in str(error.value)
  found, _ = restore_program(path, here, v2, mapping=ast.literal_eval(text))
  assert {role: found[role] for role in values if role in found} == {
    role: value for role, value in values.items() if role in found
  }
