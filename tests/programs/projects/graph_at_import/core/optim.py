from tensorflow.python.training.experimental.loss_scale import DynamicLossScale
from tensorflow.python.training.experimental.loss_scale_optimizer import MixedPrecisionLossScaleOptimizer
from tensorflow.train import AdagradOptimizer, get_or_create_global_step

import config
from core.graph import loss

global_step = get_or_create_global_step()
optimizer = MixedPrecisionLossScaleOptimizer(
    AdagradOptimizer(0.05), DynamicLossScale(config.INITIAL_SCALE, 2))
train_op = optimizer.minimize(loss, global_step)
