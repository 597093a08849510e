import numpy as np

x = np.array([[0., 1.], [1., 0.], [1., 1.]], np.float32)
y = np.array([1., 2., 3.], np.float32)
