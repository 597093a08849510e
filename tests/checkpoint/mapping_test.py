# SPDX-License-Identifier: Apache-2.0
"""Tests restores and conversions with a mapping from the user."""

import ast
import re
import shlex

import pytest
import role_programs
from role_programs import GAN
from role_programs import get_program
from role_programs import restore_program
from role_programs import save_program
from saved_graphs import save_tensors
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1
_folder_of_programs = role_programs.folder_of_programs
NUMBERS = [("s10", "dynamic"), ("s2", "dynamic")]


def test_the_mapping_decides(tmp_path):
  path, values = save_program(tmp_path, GAN, False, meta=False)
  with pytest.raises(checkpoint.CheckpointError) as error:
    restore_program(path, [("", "dynamic"), ("", "dynamic")], True)
  mapping = {
    "current_loss_scale": "train_gen/current_loss_scale",
    "current_loss_scale_1": "train_disc/current_loss_scale",
  }
  for i, scope in ((0, "train_gen"), (1, "train_disc")):
    for power in ("beta1_power", "beta2_power"):
      here = power + "_1" * i
      assert here in str(error.value)
      assert f"{scope}/cond_1/{power}" in str(error.value)
      mapping[here] = f"{scope}/cond_1/{power}"
  found, report = restore_program(
    path, [("", "dynamic"), ("", "dynamic")], True, mapping=mapping
  )
  assert found == values
  assert "mapping" in report.proofs["beta1_power_1"]
  assert report.bridged["good_steps"] == "train_gen/good_steps"


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("scope", "v2"),
  # To a program in v2, numbers do not show the order within a scope.
  [("", False), ("", True), ("net/", True)],
)
def test_the_mapping_of_an_error_can_be_pasted(scope, v2, tmp_path):
  """Checks that its pairs are right if the order of creation is the same."""
  optimizers = [(scope, "dynamic")] * 3
  path, values = save_program(tmp_path, optimizers, v2)
  with pytest.raises(checkpoint.CheckpointError) as error:
    restore_program(path, optimizers, not v2)
  text = str(error.value)
  assert "\n" not in text and "same_order=True (--same-order)" in text
  mapping = ast.literal_eval(re.search(r"mapping=(\{.*?\})", text)[1])
  for wishes in ({"mapping": mapping}, {"same_order": True}):
    found, _ = restore_program(path, optimizers, not v2, **wishes)
    assert found == values
  words = shlex.split(text[text.index("--map") : text.index("; that is")])
  assert words[::2] == ["--map"] * len(mapping)
  assert words[1::2] == [f"{a}={b}" for a, b in mapping.items()]


@pytest.mark.any_release
@pytest.mark.parametrize("same_order", [False, True])
def test_names_do_not_show_an_order_across_scopes(same_order, tmp_path):
  path, _ = save_program(tmp_path, GAN, False)
  with pytest.raises(checkpoint.CheckpointError) as error:
    restore_program(path, GAN, True, same_order=same_order)
  assert "'beta1_power': ..." in str(error.value)
  assert "names do not show the order" in str(error.value)


@pytest.mark.any_release
def test_one_of_several_scopes(tmp_path):
  path, values = save_program(tmp_path, GAN, False)
  for kind in ("dynamic", "none"):
    found, _ = restore_program(path, [("train_gen", kind)], False)
    assert found == {role: values[role] for role in found}
  with pytest.raises(checkpoint.CheckpointError, match="names do not tell"):
    restore_program(path, [("", "dynamic")], True)


@pytest.mark.any_release
def test_other_optimizers_have_a_claim(tmp_path):
  """Checks that a restore of one variable counts the program's others."""
  path, _ = save_program(tmp_path, [("", "dynamic")] * 2, False)
  program = get_program([("", "dynamic")] * 2, True)
  for i in range(2):
    chosen = [program.variables[i, "beta1"]]
    with pytest.raises(checkpoint.CheckpointError, match="names do not tell"):
      program.restore(path, variables=chosen)


def test_a_loss_scale_of_another_system(tmp_path):
  """Checks a scale without a name, float32 masters and their slots."""
  master = "optim/FP32-master-copy/w"
  with tf.Graph().as_default(), tf1.Session() as session:
    tf1.get_variable("w", initializer=tf.constant([1.0], tf.float16))
    tf1.get_variable(master, initializer=[1.0001])
    tf1.get_variable(f"optim/{master}/Momentum", initializer=[0.25])
    with tf1.name_scope("optim/"):
      for value, dtype in ((12, "int64"), (7, "int64"), (4096.0, "float32")):
        tf1.Variable(tf.constant(value, dtype), trainable=False)
    session.run(tf1.global_variables_initializer())
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
  with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable("w", [1])
    momentum = tf1.train.MomentumOptimizer(0.1, 0.9)
    scale = tfl.DynamicLossScale(2.0)
    tfl.MixedPrecisionLossScaleOptimizer(momentum, scale).minimize(w * w)
    report = checkpoint.restore(
      session,
      path,
      mapping={
        "current_loss_scale": "optim/Variable_2",
        "good_steps": None,
        "w": master,
        "w/Momentum": f"optim/{master}/Momentum",
      },
    )
    slot = momentum.get_slot(w, "momentum")
    values = [float(v) for v in session.run([scale(), w[0], slot[0]])]
  assert values == [4096.0, pytest.approx(1.0001), 0.25]
  assert set(report.initialized) == {"good_steps"} and not report.kept


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("mapping", "what"),
  [
    ({"w": "w0"}, "'w'.*nearest: .*no variable"),
    ({"w0": "v0"}, "'v0'.*not in the checkpoint"),
  ],
)
def test_a_mapping_of_what_is_not_there(mapping, what, tmp_path):
  path, _ = save_program(tmp_path, GAN, False)
  with pytest.raises(ValueError, match=what):
    restore_program(path, GAN, False, mapping=mapping)


def test_the_printed_mapping_can_be_pasted(tmp_path):
  """Checks loss scales of tf.contrib, which have a count more than ours."""
  path, values = save_program(tmp_path, [("", "dynamic")] * 2, False)
  there = [("", "contrib")] * 2
  with pytest.raises(checkpoint.CheckpointError) as error:
    restore_program(path, there, False)
  shown = re.search(r"mapping=(\{.*?\})", str(error.value))
  mapping = ast.literal_eval(shown[1])
  found, _ = restore_program(path, there, False, mapping=mapping)
  assert found.items() >= values.items()
  assert [found[i, "bad_steps"] for i in (0, 1)] == [0, 0]


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


@pytest.mark.any_release
def test_a_mapping_against_the_names(tmp_path):
  """Checks that the mapping wins, and decides about both loss scales."""
  path, values = save_program(tmp_path, [("", "dynamic")] * 2, False)
  crossed = {"good_steps": "good_steps_1"}
  found, _ = restore_program(
    path, [("", "dynamic")] * 2, False, mapping=crossed
  )
  for i in range(2):
    for what in ("loss_scale", "good_steps"):
      assert found[i, what] == values[1 - i, what]


@pytest.mark.any_release
def test_a_mapping_of_one_power_is_of_both(tmp_path):
  path, values = save_program(tmp_path, [("", "none")] * 2, True, meta=False)
  found, _ = restore_program(
    path, [("", "none")] * 2, True, mapping={"beta1_power": "beta1_power_1"}
  )
  for i in range(2):
    for power in ("beta1", "beta2"):
      assert found[i, power] == values[1 - i, power]


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
@pytest.mark.parametrize(
  ("text", "what"),
  [("a", "HERE=THERE"), ("=a", "HERE=THERE"), ("nope=no", "'no'")],
)
def test_mistakes_in_maps(text, what, tmp_path, capsys):
  path, _ = save_program(tmp_path, GAN, False)
  with pytest.raises(SystemExit) as exit_:
    new = str(tmp_path / "new")
    cli.main(["convert", path, new, "--to=saver-v2", f"--map={text}"])
  assert exit_.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert what in line


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("what", "name"),
  [
    ("weights", "current_loss_scale"),
    ("weights", "beta1_power"),
    ("all_but_optimizer", "beta1_power"),
  ],
)
@pytest.mark.parametrize("key", ["beta2_power", None])
def test_a_mapping_of_what_is_left_out(what, name, key, tmp_path):
  path, _ = save_program(tmp_path, [("", "dynamic")], True)
  program = get_program([("", "dynamic")], True)
  with pytest.raises(
    ValueError, match=f"mapping names '{name}', which what='{what}' leaves out"
  ):
    program.restore(path, what=what, mapping={name: key})


@pytest.mark.any_release
@pytest.mark.parametrize("mapping", [[("a", "b")], [], "ab", {"a": 1}])
def test_a_mapping_of_other_kinds(mapping, tmp_path):
  path, _ = save_program(tmp_path, GAN, False)
  with pytest.raises(ValueError, match="mapping must be a dict from"):
    restore_program(path, GAN, False, mapping=mapping)


@pytest.mark.any_release
def test_variables_of_other_kinds(tmp_path):
  path, _ = save_program(tmp_path, GAN, False)
  for variables in (tf.Variable([1.0]), {"w0": 1.0}):
    with pytest.raises(ValueError, match="variables must be a list of"):
      checkpoint.restore(None, path, variables=variables)
