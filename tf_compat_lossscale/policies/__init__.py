# SPDX-License-Identifier: Apache-2.0
"""Rules of loss scaling beyond that of `DynamicLossScale`.

`GrowthBackoff` and `LogNormal` are loss scales. `like` returns the
`GrowthBackoff` that has the rule of another system. `find_rule` returns such a
rule without TensorFlow, to simulate runs. `state_dict` and `load_state_dict`
exchange the state of a loss scale with other systems:

```
from tf_compat_lossscale import policies

loss_scale = policies.like("torch", growth_interval=500)
scales = policies.find_rule("megatron").simulate([True, False, True])
policies.load_state_dict(loss_scale, scaler.state_dict())  # PyTorch's scaler.
```
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tf_compat_lossscale.policies.growth_backoff import GrowthBackoff
  from tf_compat_lossscale.policies.growth_backoff import like
  from tf_compat_lossscale.policies.growth_backoff_rule import GrowthBackoffRule
  from tf_compat_lossscale.policies.growth_backoff_rule import (
    MinimumReachedError,
  )
  from tf_compat_lossscale.policies.log_normal import LogNormal
  from tf_compat_lossscale.policies.log_normal_rule import LogNormalRule
  from tf_compat_lossscale.policies.state_dicts import load_state_dict
  from tf_compat_lossscale.policies.state_dicts import state_dict
  from tf_compat_lossscale.policies.systems import find_rule
  from tf_compat_lossscale.policies.systems import list_names

__all__ = [
  "GrowthBackoff",
  "GrowthBackoffRule",
  "LogNormal",
  "LogNormalRule",
  "MinimumReachedError",
  "find_rule",
  "like",
  "list_names",
  "load_state_dict",
  "state_dict",
]

# Names are loaded at their first use, since simulations need no TensorFlow.
if not TYPE_CHECKING:  # Checkers see the names above, and no others.
  from tf_compat_lossscale._lazy import load_lazily

  __getattr__, __dir__ = load_lazily(
    __name__,
    {
      "GrowthBackoff": "growth_backoff",
      "GrowthBackoffRule": "growth_backoff_rule",
      "LogNormal": "log_normal",
      "LogNormalRule": "log_normal_rule",
      "MinimumReachedError": "growth_backoff_rule",
      "find_rule": "systems",
      "like": "growth_backoff",
      "list_names": "systems",
      "load_state_dict": "state_dicts",
      "state_dict": "state_dicts",
    },
  )
