# SPDX-License-Identifier: Apache-2.0
"""Draws random training programs, and variants in which to build them.

A program is plain data: variables, optimizers, scopes and conds, in the order
in which to create them. A variant says how the program's optimizers are wrapped
and under which control flow the program is built.

This module also runs on Python 3.7.
"""

from __future__ import annotations

import collections
import random

KINDS = ("plain", "dynamic", "fixed", "contrib")
SCALING = ("dynamic", "contrib")  # The kinds whose loss scale has variables.
# Names for users' variables, and their dtypes. Optimizers and loss scales use
# the same names.
_INTERNAL = {
  "loss_scale": ("float32", "float32", "float64"),
  "current_loss_scale": ("float32", "float32", "float64"),
  "good_steps": ("int64", "int32"),
  "bad_steps": ("int32", "int32", "int64"),
  "beta1_power": ("float32",),
  "beta2_power": ("float32",),
  "cond/w": ("float32",),
  "cond_1/w": ("float32",),
  "cond/beta1_power": ("float32",),
  "cond_1/beta1_power": ("float32",),
  "cond_1/beta2_power": ("float32",),
}
_INNER_DRAWN = [
  *["adam"] * 8,
  *("maxed", "maxed", "custom"),
  *("adagrad", "adam", "custom", "maxed", "momentum", "rmsprop", "sgd"),
]


def _scopes(rng: random.Random, count: int) -> list:
  """Draws the scopes in which to create the optimizers."""

  def one() -> list:
    return rng.choice(
      [
        [],
        [["name", "train_gen"]],
        [["name", "train_dis"]],
        [["variable", "tower"]],
        [["variable", "tower"], ["name", "train"]],
        [["name", "outer"], ["name", "inner"]],
        [["name", "cond"]],
        [["name", "a"], ["variable", "b"]],
      ]
    )

  scheme = rng.choice(["none", "none", "anti", "anti", "equal", "some", "some"])
  if scheme == "none":
    return [[]] * count
  if scheme == "anti":
    what = rng.choice(["name", "name", "variable"])
    names = rng.choice(
      [("s2", "s10", "s1"), ("z", "m", "a"), ("train_gen", "train_dis", "b")]
    )
    return [[[what, name]] for name in names[:count]]
  if scheme == "equal":
    same = rng.choice([one(), [["name", "train/"]], [["name", "train"]]])
    return [same] * count
  return [one() for _ in range(count)]


def program_of(seed: int) -> dict:
  """Draws a program: plain data that JSON can represent."""
  rng = random.Random(seed)
  count = rng.choice([1, 2, 2, 2, 2, 3, 3])
  program = {
    "seed": seed,
    "resource": rng.random() < 0.65,
    "weights": {},
    "optimizers": {},
    "users": {},
    "ema": [],
    "steps": [],
  }
  style = rng.choice(["gan", "gan", "same", "split", "overlap"])
  scopes = _scopes(rng, count)
  prefixes = [f"{names[-1][1].strip('/')}/" for names in scopes if names]
  sizes = [
    rng.choice([1, 1, 2]) for _ in range(count if style != "same" else 1)
  ]
  parts = []
  for i, size in enumerate(sizes):
    scope = ["gen/", "dis/", "enc/"][i] if style == "gan" else ""
    part = []
    for _ in range(size):
      key = f"w{len(program['weights'])}"
      program["weights"][key] = {
        "name": scope + key,
        "how": rng.choice(["get", "variable"]),
        "sparse": rng.random() < 0.2,
      }
      part.append(key)
    parts.append(part)
  everything = list(program["weights"])
  # Optimizers are often of one kind, so that their kinds do not identify them.
  kind = rng.choice(_INNER_DRAWN)
  alike = rng.random() < 0.5
  shared = count > 1 and rng.random() < 0.2
  with_step = rng.choice(["none", "first", "all"])
  for i in range(count):
    if style in ("same", "overlap"):
      trained = everything if rng.random() < 0.6 else [rng.choice(everything)]
    else:
      trained = parts[i]
    program["optimizers"][f"opt{i}"] = {
      "kind": kind if alike else rng.choice(_INNER_DRAWN),
      "scope": scopes[i],
      "trains": list(trained),
      "reads": everything if rng.random() < 0.6 else [],
      "step": with_step == "all" or (with_step == "first" and i == 0),
      "scale": "ls0" if shared and i < 2 else f"ls{i}",
    }
  _draw_steps(rng, program, prefixes, with_step)
  _part_slots(program)
  for spec in program["optimizers"].values():
    spec["guarded"] = program["resource"] and rng.random() < 0.25
  return program


def _part_slots(program: dict) -> None:
  """Changes variable scopes in which two slots would have one name.

  TensorFlow refuses such slots. They occur if two optimizers of one kind train
  the same variable in the same variable scope.
  """
  taken = set()
  for spec in program["optimizers"].values():
    path = "/".join(name for what, name in spec["scope"] if what == "variable")
    slots = {(path, spec["kind"], name) for name in spec["trains"]}
    if path and slots & taken:
      spec["scope"] = [["name", name] for _, name in spec["scope"]]
    taken |= slots


def _draw_steps(rng, program, prefixes, with_step) -> None:
  """Draws the other parts of a program, and the order of all parts."""
  steps = [["weight", key] for key in program["weights"]]
  for i in range(rng.choice([0, 0, 0, 1, 2, 3, 4])):
    name = rng.choice(sorted(_INTERNAL))
    user = {
      "name": (rng.choice(prefixes) if prefixes and rng.random() < 0.3 else "")
      + name,
      "how": rng.choice(["get", "variable"]),
      "dtype": rng.choice(_INTERNAL[name]),
    }
    if any(
      user["name"] == other["name"] for other in program["users"].values()
    ):
      continue
    program["users"][f"u{i}"] = user
    if user["dtype"] == "float32" and rng.random() < 0.3:
      steps.append(["user", f"u{i}"])
      spec = program["optimizers"][rng.choice(sorted(program["optimizers"]))]
      spec["trains"].append(f"u{i}")
  if with_step != "none":
    steps.append(["step", ""])
  steps += [["optimizer", key] for key in program["optimizers"]]

  def insert(step, first, last) -> None:
    steps.insert(rng.randint(first, last), step)

  for key in program["users"]:
    if ["user", key] not in steps:
      insert(["user", key], 0, len(steps))
  for key in sorted({o["scale"] for o in program["optimizers"].values()}):
    if rng.random() < 0.4:
      first = min(
        i
        for i, (what, name) in enumerate(steps)
        if what == "optimizer" and program["optimizers"][name]["scale"] == key
      )
      insert(["scale", key], 0, first)
  for _ in range(rng.choice([0, 0, 0, 1, 2])):
    insert(["cond", ""], 0, len(steps))
  if rng.random() < 0.25:
    program["ema"] = sorted(program["weights"])
    last = max(i for i, s in enumerate(steps) if s[0] == "weight")
    insert(["ema", ""], last + 1, len(steps))
  program["steps"] = steps


def variant_of(rng: random.Random, program: dict) -> dict:
  """Draws a variant in which to build a program."""
  by_scale = {}
  kinds = {}
  weights = rng.choice([(5, 1, 1, 1), (3, 0, 0, 1), (0, 1, 0, 2), (1, 0, 1, 0)])
  drawn = [
    kind
    for kind, weight in zip(("dynamic", "plain", "fixed", "contrib"), weights)
    for _ in range(weight)
  ]
  sharing = collections.Counter(
    spec["scale"] for spec in program["optimizers"].values()
  )
  for key, spec in program["optimizers"].items():
    scale = spec["scale"]
    kind = by_scale.setdefault(scale, rng.choice(drawn))
    if sharing[scale] > 1 and rng.random() < 0.15:
      kind = "plain"
    kinds[key] = kind
  return {"kinds": kinds, "v2": rng.random() < 0.4, "dropped": []}


def changed(rng: random.Random, program: dict, variant: dict) -> dict:
  """Draws a change to a variant of a program; returns the new variant."""
  kinds = dict(variant["kinds"])
  result = {"kinds": kinds, "v2": variant["v2"], "dropped": []}
  what = rng.choice(
    ["same", *["flow"] * 5, *["wrap"] * 3, "api", "api", "number", "order"]
  )
  if rng.random() < (1 if what == "order" else 0.2):
    result["order"] = rng.sample(sorted(kinds), len(kinds))
  if what == "same":
    return dict(variant)
  if what == "flow" or rng.random() < 0.3:
    result["v2"] = not variant["v2"]
  if what == "number":
    if variant["dropped"]:
      return result
    if len(kinds) > 1:
      result["dropped"] = [rng.choice(sorted(kinds))]
      return result
  result["dropped"] = list(variant["dropped"])
  if what == "wrap":
    for key, kind in variant_of(rng, program)["kinds"].items():
      if rng.random() < 0.6:
        kinds[key] = kind
  elif what == "api":
    swap = {"dynamic": "contrib", "contrib": "dynamic"}
    kinds.update({key: swap.get(kind, kind) for key, kind in kinds.items()})
  # All optimizers that share a loss scale have the same kind of loss scale.
  by_scale = {}
  for key, spec in program["optimizers"].items():
    if kinds[key] != "plain":
      kinds[key] = by_scale.setdefault(spec["scale"], kinds[key])
  return result


def layout_variant(variant: dict, to: str) -> dict:
  """Returns the variant that reads a checkpoint of a layout of `convert`."""
  swap = {
    "contrib": {"dynamic": "contrib"},
    "fp32": dict.fromkeys(KINDS, "plain"),
  }.get(to, {"contrib": "dynamic"})
  kinds = {k: swap.get(kind, kind) for k, kind in variant["kinds"].items()}
  v2 = to == "saver-v2" or (to == "fp32" and variant["v2"])
  return dict(variant, kinds=kinds, v2=v2)


def own_layout(program, variant):
  """Returns the layout in which a variant saves, or None if it has no name."""
  kinds = {
    kind
    for key, kind in variant["kinds"].items()
    if key not in variant["dropped"]
  }
  if not kinds & set(SCALING):
    return "fp32"
  if {"dynamic", "contrib"} <= kinds:
    return None
  if "contrib" in kinds:
    return None if variant["v2"] else "contrib"
  v1 = not variant["v2"] or not program["resource"]
  return "saver" if v1 else "saver-v2"
