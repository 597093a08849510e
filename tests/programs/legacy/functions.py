"""TensorFlow 2.3: a loss scale used by hand in a tf.function."""
import tensorflow as tf

w = tf.Variable([1., 2.])
scale = tf.mixed_precision.experimental.DynamicLossScale(2. ** 125, increment_period=2)
fixed = tf.train.experimental.FixedLossScale(8)


@tf.function
def step():
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(w * w) * scale() * 8. / fixed()
  grads = [g / scale() for g in tape.gradient(loss, [w])]
  _, should_apply = scale.update(grads)
  if should_apply:
    w.assign_sub(0.1 * grads[0])
  return should_apply


for _ in range(5):
  print(bool(step()), scale().numpy(), w.numpy().round(4))
