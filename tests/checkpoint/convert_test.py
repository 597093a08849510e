# SPDX-License-Identifier: Apache-2.0
"""Tests the tensors that conversions change, and mistakes in arguments."""

import functools

from checkpoint_contents import contents
import helpers
import numpy as np
import pytest
from saved_graphs import save_tensors
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1
_STATE = {"loss_scale", "current_loss_scale", "good_steps", "bad_steps"}


@functools.cache
def golden_contents(golden):
  return contents(checkpoint.describe(helpers.GOLDENS / golden).path)


def pairs(layouts, core=""):
  """Returns (golden, layout) pairs, with each kind of golden in each layout.

  Each golden is in at least one pair. If several releases wrote a kind of
  golden, the releases and the layouts take turns. Pairs whose golden has `core`
  in its name are tested on every release of TensorFlow, other pairs on one.
  """
  kinds = {}
  for golden in helpers.list_goldens("session", "contrib"):
    kinds.setdefault(golden.split("/")[1], []).append(golden)
  return [
    pytest.param(
      goldens[i % len(goldens)],
      layouts[i % len(layouts)],
      marks=[] if core and core in kind else [pytest.mark.any_release],
    )
    for kind, goldens in kinds.items()
    for i in range(max(len(goldens), len(layouts)))
  ]


def without_state(tensors):
  """Returns tensors without loss scales, object graph and cond scopes."""
  return {
    key.replace("cond_1/", "").replace("cond/", ""): value
    for key, value in tensors.items()
    if not _STATE & set(key.split("/"))
  }


@pytest.mark.parametrize(
  ("golden", "layout"),
  pairs(["saver", "saver-v2", "contrib", "fp32"], core="session_dynamic_adam"),
)
def test_names_are_those_of_that_api(golden, layout, tmp_path):
  """Checks that TensorFlow's Saver restores into a model of that API."""
  import golden_runner

  expected, path = helpers.expected_of(golden), helpers.GOLDENS / golden
  checkpoint.convert(path, tmp_path / "new", layout)
  before, after = golden_contents(golden), contents(tmp_path / "new")
  assert without_state(after) == without_state(before)
  d = checkpoint.describe(tmp_path / "new")
  old = checkpoint.describe(path)
  dynamic = bool(old.loss_scales) and layout != "fp32"
  api = "contrib" if dynamic and layout == "contrib" else "compat.v1"
  assert bool(d.loss_scales) == dynamic
  if dynamic:
    assert d.api == api
    assert d.loss_scales[0].value == old.loss_scales[0].value
    assert d.loss_scales[0].good_steps == old.loss_scales[0].good_steps
  if dynamic and api == "compat.v1" == old.api:  # The way back.
    own = "saver" if old.control_flow == "v1" else "saver-v2"
    checkpoint.convert(tmp_path / "new", tmp_path / "back", own)
    assert contents(tmp_path / "back") == before
  kind = {"api": api, "kind": "dynamic" if dynamic else "fixed"}
  kind |= {"increment_period": 3, "use_resource": layout == "saver-v2"}
  with (
    helpers.control_flow(layout == "saver-v2"),
    tf.Graph().as_default(),
    tf1.Session() as session,
  ):
    golden_runner.Model(expected | kind)
    tf1.train.Saver().restore(session, str(tmp_path / "new"))


@pytest.mark.parametrize(("golden", "reset"), pairs([False, True]))
def test_the_scale_is_set(golden, reset, tmp_path):
  how = {"reset": True} if reset else {"set_loss_scale": 2.0**20}
  path = helpers.GOLDENS / golden
  done = checkpoint.convert(path, tmp_path / "new", "saver", **how)
  (state,) = checkpoint.describe(tmp_path / "new").loss_scales
  assert state.value == (2.0**15 if reset else 2.0**20)
  assert state.good_steps == 0
  assert {name.split("/")[-1] for name in done.changed} <= _STATE
  before = without_state(golden_contents(golden))
  assert without_state(contents(tmp_path / "new")) == before


_SESSION = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"
_OBJECTS = _SESSION / "object" / "ckpt-1"


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("source", "arguments", "what"),
  [
    (_SESSION, ["--to=savers"], "'savers' is no layout; there are saver, sav"),
    (_SESSION, [], "required: --to"),
    (_SESSION, ["--to=object"], "restore into the live objects and save"),
    (_SESSION, ["--to=saver", "--set-loss-scale=0"], "at least 1"),
    (_SESSION, ["--to=saver", "--set-loss-scale=nan"], "at least 1"),
    (_SESSION, ["--to=saver", "--set-loss-scale=2", "--reset"], "not allowed"),
    (_SESSION, ["--to=fp32", "--reset"], "contrib, but the layout is fp32"),
    (_SESSION, ["--to=saver", "--map=a"], "HERE=THERE"),
    (_SESSION, ["--to=saver", "--map==a"], "a scope to a scope"),
    (_SESSION, ["--to=saver", "--map=nope=no"], "'no'"),
    (_OBJECTS, ["--to=fp32"], "restore it into the live objects"),
    ("nowhere", ["--to=fp32"], "nowhere: no such checkpoint"),
  ],
)
def test_mistakes(source, arguments, what, tmp_path, capsys):
  with pytest.raises(SystemExit) as exit_:
    cli.main(["convert", str(source), str(tmp_path / "new"), *arguments])
  assert exit_.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith("tf-lossscale convert: ") and what in line, line
  assert not list(tmp_path.iterdir())


@pytest.mark.any_release
def test_counters_that_contrib_cannot_hold(tmp_path):
  path = save_tensors(tmp_path, _SCALE | {"good_steps": np.int64(2**31)})
  with pytest.raises(checkpoint.CheckpointError, match="int32 cannot hold"):
    checkpoint.convert(path, tmp_path / "new", "contrib")


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("mapping", "what"),
  [
    ({"scale": "current_loss_scal"}, "nearest: current_loss_scale.*not in the"),
    ({"dense/kernel": None}, "not in the"),
    ({"": "w"}, r"from a scope to a scope .* has \[\('', 'w'\)\]"),
    ({1: "w"}, r"mapping must be a dict .* has \[\(1, 'w'\)\]"),
    (["w"], r"mapping must be a dict .* \['w'\]"),
    ({"b": "w"}, "name b, which b would have, too.*--map NAME=b"),
  ],
)
def test_mappings_that_do_not_fit(mapping, what, tmp_path):
  with pytest.raises(checkpoint.CheckpointError, match=what):
    checkpoint.convert(_SESSION, tmp_path / "new", "saver", mapping=mapping)
  assert not list(tmp_path.iterdir())


def save(folder, *names, **values):
  """Saves scalars of float32, or those with other values."""
  return save_tensors(folder, dict.fromkeys(names, 0.5) | values)


_SCALE = {"current_loss_scale": 8.0, "good_steps": np.int64(1)}


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("there", "to", "expected"),
  [
    # NVIDIA's BERT applies gradients in a cond of its own.
    ("cond_2/cond_3", "fp32", "cond_2"),
    ("cond_2/cond_3", "contrib", "cond_2/cond_2"),
    ("cond_2/cond_3", "saver-v2", ""),
    ("s/cond_1", "fp32", "s"),
    ("s/cond_3", "contrib", "s/cond_2"),
    ("", "saver", "cond_1"),
    ("", "contrib", "cond"),
    ("", "fp32", ""),
    ("cond", "contrib", "cond"),  # The program's own.
    ("s", "saver", "s"),  # In this place, the optimizer has no loss scale.
  ],
)
def test_scopes_of_powers(there, to, expected, tmp_path):
  powers = [f"{there}/beta{i}_power".lstrip("/") for i in (1, 2)]
  source = save(tmp_path, "w", *powers, **_SCALE)
  result = checkpoint.convert(source, tmp_path / "new", to)
  new = [f"{expected}/beta{i}_power".lstrip("/") for i in (1, 2)]
  assert set(new) < result.written.keys()
  assert result.renamed.items() >= {
    (n, p) for n, p in zip(new, powers) if n != p
  }
  assert ("assumed that beta1_power" in str(result.notes)) == (
    (there, to) in (("", "saver"), ("", "contrib"))
  )


@pytest.mark.any_release
@pytest.mark.parametrize("to", ["saver", "saver-v2", "fp32"])
def test_a_scope_of_weights_that_is_called_cond(to, tmp_path):
  own = dict.fromkeys(("cond/w", "cond/w/Adam", "cond/b"), np.ones([2]))
  powers = ("cond/beta1_power", "cond/beta2_power")  # tf.contrib's.
  source = save(tmp_path, *powers, **own)
  mapping = {power.removeprefix("cond/"): power for power in powers}
  result = checkpoint.convert(source, tmp_path / "new", to, mapping=mapping)
  assert result.written.keys() == {*own, *mapping}


# Names in the checkpoint, the layout, and what is likely.
_UNCLEAR = {
  "two scopes": (["a/cond_1/{}", "b/cond_1/{}"], 2, "saver-v2", None),
  "two optimizers": (
    ["{}", "{}_1"],
    2,
    "saver",
    {"cond_1/{}": "{}", "cond_3/{}": "{}_1"},
  ),
  "one of two has a loss scale": (["{}", "{}_1"], 1, "saver", None),
  "one in a cond": (["{}", "cond_1/{}"], 1, "saver-v2", None),
  "the cond of a fixed loss scale": (
    ["cond/{}"],
    0,
    "fp32",
    {"{}": "cond/{}"},
  ),
}


@pytest.mark.any_release
@pytest.mark.parametrize("case", _UNCLEAR)
def test_what_names_do_not_tell(case, tmp_path):
  """Checks the error, and that its mapping and same_order decide."""
  there, scales, to, likely = _UNCLEAR[case]
  powers = [n.format(f"beta{i}_power") for n in there for i in (1, 2)]
  values = {
    name + f"_{i}" * bool(i): value
    for i in range(scales)
    for name, value in _SCALE.items()
  }
  source = save(tmp_path, "w", *powers, **values)
  new = tmp_path / "new"
  with pytest.raises(checkpoint.CheckpointError) as error:
    checkpoint.convert(source, new, to)
  assert "nothing was written: names do not tell which of" in str(error.value)
  assert not new.with_suffix(".index").exists()
  if likely is None:
    with pytest.raises(checkpoint.CheckpointError, match="do not tell"):
      checkpoint.convert(source, new, to, same_order=True)
    return
  pairs = {
    k.format(f"beta{i}_power"): v.format(f"beta{i}_power")
    for k, v in likely.items()
    for i in (1, 2)
  }
  for here, name in pairs.items():
    assert f"{here!r}: {name!r}" in str(error.value)
  for kwargs in ({"same_order": True}, {"mapping": pairs}):
    result = checkpoint.convert(source, new, to, overwrite=True, **kwargs)
    assert pairs.items() <= result.renamed.items()


@pytest.mark.any_release
def test_what_looks_like_a_loss_scale(tmp_path):
  """Checks that a program's own variables are kept, or refused."""
  source = save(tmp_path, "w", good_steps=np.int64(3), loss_scale=2.0)
  for to in ("saver", "fp32"):
    result = checkpoint.convert(source, tmp_path / to, to)
    assert not result.renamed and not result.dropped and not result.added
  source = save(tmp_path, current_loss_scale=8.0)
  result = checkpoint.convert(source, tmp_path / "one", "saver", reset=True)
  assert set(result.changed) == {"current_loss_scale", "good_steps"}


@pytest.mark.any_release
def test_a_loss_scale_in_a_scope_called_cond(tmp_path):
  values = {f"cond/{name}": value for name, value in _SCALE.items()}
  source = save(tmp_path, "w", good_steps=np.int64(3), **values)
  result = checkpoint.convert(source, tmp_path / "new", "saver-v2")
  assert not result.renamed and not result.dropped


@pytest.mark.any_release
@pytest.mark.parametrize("scope", ["", "b/"])
def test_loss_scales_of_both_apis(scope, tmp_path):
  """Checks that they are refused, and that a mapping decides on one of them."""
  own = {"loss_scale": 4.0, "bad_steps": np.int32(0), "good_steps_1": 2}
  values = _SCALE | {f"{scope}{name}": value for name, value in own.items()}
  powers = ["cond_1/beta1_power", f"{scope}cond_2/beta1_power"]
  source = save(tmp_path, "w", *powers, **values)
  for same_order in (False, True):
    with pytest.raises(checkpoint.CheckpointError, match="do not tell"):
      checkpoint.convert(
        source, tmp_path / "new", "contrib", same_order=same_order
      )
  mapping = {f"{scope}{name}": f"{scope}{name}" for name in own}
  mapping |= {"x/loss_scale": "current_loss_scale"}
  mapping |= {"x/cond/beta1_power": powers[0], powers[1]: powers[1]}
  result = checkpoint.convert(
    source, tmp_path / "new", "contrib", mapping=mapping
  )
  assert result.renamed == {
    "x/loss_scale": "current_loss_scale",
    "x/good_steps": "good_steps",
    "x/cond/beta1_power": powers[0],
  }
  assert mapping.keys() < result.written.keys()


@pytest.mark.any_release
def test_no_dynamic_loss_scale(tmp_path):
  source = save(tmp_path, "w", "beta1_power", "beta2_power", loss_scale=3.0)
  result = checkpoint.convert(source, tmp_path / "a", "contrib")
  assert not result.renamed and "--map" in result.notes[0]
  result = checkpoint.convert(source, tmp_path / "b", "saver", reset=True)
  added = {"current_loss_scale", "good_steps"}
  assert set(result.changed) == added
  assert result.written.keys() > {"loss_scale", *added}
  assert [*result.renamed] == [f"cond_1/beta{i}_power" for i in (1, 2)]
  with pytest.raises(checkpoint.CheckpointError, match="of its own"):
    checkpoint.convert(source, tmp_path / "c", "contrib", reset=True)


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("to", "listed", "scale"),
  [
    ("contrib", ("beta1_power", "beta2_power"), {}),
    ("contrib", ("cond_1/beta1_power", "cond_1/beta2_power"), _SCALE),
    ("contrib", (), {}),
    ("saver", ("beta1_power", "beta2_power"), {}),
  ],
)
def test_only_powers_without_a_loss_scale_get_a_note(
  to, listed, scale, tmp_path
):
  source = save(tmp_path, "w", *listed, **scale)
  result = checkpoint.convert(source, tmp_path / "new", to)
  is_noted = any("no dynamic loss scale" in note for note in result.notes)
  assert is_noted == (to == "contrib" and bool(listed) and not scale)


@pytest.mark.any_release
def test_mappings_decide_on_the_rest(tmp_path):
  """Checks the other power, the rest of a loss scale, and a new loss scale."""
  source = save(
    tmp_path, "w", "a/beta1_power", "a/beta2_power", scale=4.0, **_SCALE
  )
  result = checkpoint.convert(
    source,
    tmp_path / "new",
    "contrib",
    mapping={"b/beta2_power": "a/beta2_power", "s/loss_scale": "scale"},
  )
  assert result.renamed["b/beta1_power"] == "a/beta1_power"
  assert {"s/good_steps", "s/bad_steps"} < set(result.added)
  result = checkpoint.convert(
    source,
    tmp_path / "two",
    "contrib",
    mapping={"s/loss_scale": "current_loss_scale", "x": "w", "y": "w"},
  )
  assert result.renamed["s/good_steps"] == "good_steps"
  assert result.renamed["x"] == result.renamed["y"] == "w"
  new = reading.Checkpoint(str(tmp_path / "two"))
  assert new.specs["s/good_steps"] == reading.TensorSpec("int32", ())
  assert new.read_scalar("s/good_steps") == 1


@pytest.mark.any_release
def test_a_mapping_within_an_api_keeps_all_counts(tmp_path):
  counts = ("spent_hysteresis", "overflows", "steps_to_overflow")
  counts = {name: np.int64(3) for name in (*counts, "skipped_steps")}
  source = save(tmp_path, "w", **_SCALE, **counts)
  mapping = {"s/current_loss_scale": "current_loss_scale"}
  result = checkpoint.convert(source, tmp_path / "n", "saver", mapping=mapping)
  assert not result.dropped
  new = reading.Checkpoint(str(tmp_path / "n"))
  assert all(new.read_scalar(f"s/{name}") == 3 for name in counts)


@pytest.mark.any_release
def test_a_mapping_keeps_what_it_names(tmp_path):
  """Checks a count of contrib, and a mapping that the error printed."""
  source = save(tmp_path, "w", mine=np.int32(7), **_SCALE)
  checkpoint.convert(
    source, tmp_path / "new", "contrib", mapping={"bad_steps": "mine"}
  )
  new = reading.Checkpoint(str(tmp_path / "new"))
  assert new.read_scalar("bad_steps") == 7
  values = _SCALE | {"good_steps_1": np.int32(2)}
  values |= {"loss_scale": 4.0, "bad_steps": np.int32(0)}
  source = save(tmp_path, "w", **values)
  for to in ("saver", "contrib", "fp32"):
    with pytest.raises(
      checkpoint.CheckpointError, match=r"keep all by mapping="
    ):
      checkpoint.convert(source, tmp_path / to, to)
    checkpoint.convert(
      source, tmp_path / to, to, mapping={name: name for name in values}
    )
    assert contents(tmp_path / to) == contents(source)
  with pytest.raises(checkpoint.CheckpointError, match="do not tell"):
    checkpoint.convert(source, tmp_path / "set", "saver", set_loss_scale=8)


@pytest.mark.any_release
def test_a_loss_scale_is_added_to_a_scope(tmp_path):
  """Checks that the caller must say that the optimizer there has it."""
  source = save(tmp_path, "w", "s/beta1_power", "s/beta2_power")
  convert = functools.partial(
    checkpoint.convert, source, tmp_path / "new", "contrib", reset=True
  )
  with pytest.raises(checkpoint.CheckpointError, match="do not tell"):
    convert()
  result = convert(mapping={"s/cond/beta1_power": "s/beta1_power"})
  assert "good_steps" in result.changed
  assert [*result.renamed] == [f"s/cond/beta{i}_power" for i in (1, 2)]
