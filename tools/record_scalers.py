# SPDX-License-Identifier: Apache-2.0
"""Records what the loss scalers of other systems do, for the tests.

  python tools/record_scalers.py NAME...

NAME is deepspeed, flax, jmp, keras3, megatron or torch. Run this in an
environment that has the system: it need not have TensorFlow. The tool drives
the system's own code through random runs and writes the scales to
tests/goldens/scalers/NAME.npz. README.md there says which release was recorded.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import functools
import importlib
import importlib.metadata
import pathlib
import sys
from types import ModuleType
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

ROOT = pathlib.Path(__file__).absolute().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import scaler_cases  # noqa: E402

_COUNT = 10_000
_SEED = 2018
# The package that pip installs for each system.
_PACKAGES = {
  "deepspeed": "deepspeed",
  "flax": "flax",
  "jmp": "jmp",
  "keras3": "keras",
  "megatron": "megatron-core",
  "torch": "torch",
}
_BAD = (float("inf"), float("-inf"), float("nan"))


def record_torch(case: scaler_cases.Case) -> list[float]:
  """Trains a parameter with `torch.amp.GradScaler` on the CPU."""
  torch = _import("torch", "torch")
  weight = torch.nn.Parameter(torch.ones(1))
  optimizer = torch.optim.SGD([weight], lr=0.0)
  scaler = torch.amp.GradScaler(
    "cpu",
    init_scale=case.changes["initial_loss_scale"],
    growth_factor=case.changes["growth_factor"],
    backoff_factor=case.changes["backoff_factor"],
    growth_interval=case.changes["growth_interval"],
  )
  scales = []
  for step, overflow in enumerate(case.overflows):
    scaler.scale(weight)
    gradient = _BAD[step % len(_BAD)] if overflow else 0.0
    weight.grad = torch.full((1,), gradient)
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
  return scales


def record_flax(case: scaler_cases.Case) -> list[float]:
  """Differentiates a compiled function with `DynamicScale`."""
  dynamic_scale = _import("flax", "flax.training.dynamic_scale")
  scaler = dynamic_scale.DynamicScale(
    growth_factor=case.changes["growth_factor"],
    backoff_factor=case.changes["backoff_factor"],
    growth_interval=case.changes["growth_interval"],
    scale=np.float32(case.changes["initial_loss_scale"]),
    minimum_scale=case.changes["min_loss_scale"],
  )
  scales = []
  for step, overflow in enumerate(case.overflows):
    factor = _BAD[step % len(_BAD)] if overflow else 0.0
    scaler = _compile_flax()(scaler, np.float32(1), np.float32(factor))
    scales.append(float(scaler.scale))
  return scales


@functools.cache
def _compile_flax() -> Callable[..., Any]:
  """Returns a compiled function that makes a step."""
  jax = _import("flax", "jax")

  def step(scaler: Any, weight: Any, factor: Any) -> Any:
    return scaler.value_and_grad(lambda x: x * factor)(weight).dynamic_scale

  return jax.jit(step)


def record_jmp(case: scaler_cases.Case) -> list[float]:
  """Adjusts a `jmp.DynamicLossScale`.

  The object is not passed to a compiled function, which would set the minimum
  back to 1.
  """
  jmp = _import("jmp", "jmp")
  jnp = _import("jmp", "jax.numpy")
  scaler = jmp.DynamicLossScale(
    jnp.asarray(case.changes["initial_loss_scale"], jnp.float32),
    period=case.changes["growth_interval"],
    factor=case.changes["growth_factor"],
    min_loss_scale=jnp.asarray(case.changes["min_loss_scale"], jnp.float32),
  )
  scales = []
  for overflow in case.overflows:
    scaler = scaler.adjust(jnp.asarray(not overflow))
    scales.append(float(scaler.loss_scale))
  return scales


def record_keras3(case: scaler_cases.Case) -> list[float]:
  """Applies gradients with Keras 3's `LossScaleOptimizer`."""
  optimizer, step = _make_keras3(case.changes["growth_interval"])
  optimizer.step_counter.assign(0)
  optimizer.dynamic_scale.assign(case.changes["initial_loss_scale"])
  scales = []
  for i, overflow in enumerate(case.overflows):
    step(np.float32(_BAD[i % len(_BAD)] if overflow else 0.0))
    scales.append(float(optimizer.dynamic_scale.numpy()))
  return scales


@functools.cache
def _make_keras3(interval: int) -> tuple[Any, Callable[..., Any]]:
  """Returns an optimizer and a compiled function that applies a gradient."""
  keras = _import("keras3", "keras")
  tf = _import("keras3", "tensorflow")
  weight = keras.Variable(1.0)
  optimizer = keras.optimizers.LossScaleOptimizer(
    keras.optimizers.SGD(0.0), dynamic_growth_steps=interval
  )
  optimizer.build([weight])

  @tf.function(input_signature=[tf.TensorSpec([])])
  def step(gradient: Any) -> None:
    optimizer.apply([gradient], [weight])

  return optimizer, step


def record_deepspeed(case: scaler_cases.Case) -> list[float]:
  """Updates DeepSpeed's `DynamicLossScaler`, which ZeRO uses."""
  loss_scaler = _import("deepspeed", "deepspeed.runtime.fp16.loss_scaler")
  scaler = loss_scaler.DynamicLossScaler(
    init_scale=case.changes["initial_loss_scale"],
    scale_window=case.changes["growth_interval"],
    min_scale=case.changes["min_loss_scale"],
    delayed_shift=case.changes["hysteresis"],
    consecutive_hysteresis=case.changes["consecutive_hysteresis"],
    raise_error_at_min_scale=case.changes["at_minimum"] == "raise",
  )
  scales = []
  # Rank 0 would log each step.
  with mock.patch.object(
    loss_scaler, "dist", SimpleNamespace(get_rank=lambda: 1)
  ):
    for overflow in case.overflows:
      try:
        scaler.update_scale(bool(overflow))
      except Exception as error:  # DeepSpeed raises no narrower class.
        if "already at minimum" not in str(error):
          raise
        break
      scales.append(scaler.loss_scale)
  return scales


def record_megatron(case: scaler_cases.Case) -> list[float]:
  """Updates Megatron's `DynamicGradScaler`, with its tensors on the CPU."""
  torch = _import("megatron", "torch")
  grad_scaler = _import("megatron", "megatron.core.optimizer.grad_scaler")
  make = torch.tensor

  def make_on_cpu(*args: Any, device: str, **kwargs: Any) -> Any:
    assert device == "cuda"
    return make(*args, **kwargs)

  with mock.patch.object(torch, "tensor", make_on_cpu):
    scaler = grad_scaler.DynamicGradScaler(
      initial_scale=case.changes["initial_loss_scale"],
      min_scale=case.changes["min_loss_scale"],
      growth_factor=case.changes["growth_factor"],
      backoff_factor=case.changes["backoff_factor"],
      growth_interval=case.changes["growth_interval"],
      hysteresis=case.changes["hysteresis"],
    )
  scales = []
  for overflow in case.overflows:
    scaler.update(bool(overflow))
    scales.append(scaler.scale.item())
  return scales


RECORDERS = {
  "deepspeed": record_deepspeed,
  "flax": record_flax,
  "jmp": record_jmp,
  "keras3": record_keras3,
  "megatron": record_megatron,
  "torch": record_torch,
}


@functools.cache
def _import(system: str, module: str) -> ModuleType:
  """Imports a module, or ends the tool with what to install."""
  try:
    return importlib.import_module(module)
  except ImportError as error:
    package = _PACKAGES[system]
    sys.exit(f"To record {system}, install {package}: {error}")


def record(system: str, case: scaler_cases.Case) -> scaler_cases.Recording:
  """Returns a case with the scales of a system's own code."""
  with np.errstate(over="ignore"):
    scales = np.array(RECORDERS[system](case), np.float32)
  return scaler_cases.Recording(case, scales)


def main() -> None:
  """Records the systems that the command line names."""
  parser = argparse.ArgumentParser(description="Records other loss scalers.")
  parser.add_argument("systems", nargs="+", choices=RECORDERS, metavar="NAME")
  for system in parser.parse_args().systems:
    cases = scaler_cases.make_cases(system, _COUNT, _SEED)
    path = scaler_cases.FOLDER / f"{system}.npz"
    scaler_cases.write(path, [record(system, case) for case in cases])
    release = importlib.metadata.version(_PACKAGES[system])
    print(f"{path.name}: {_PACKAGES[system]} {release}, {len(cases)} runs")


if __name__ == "__main__":
  main()
