"""
Sketch sizes for structured outputs
===================================

The score of a perfect regression bounds the score with an output sketch, and the
surrogate error shows which input sketch suffices; neither needs the complete model.
"""

import matplotlib.pyplot as plt

import nbsketch
from nbsketch.datasets import make_documents
from nbsketch.structured import select_input_size, select_output_size

X, Y = make_documents(2000, n_words=400, n_labels=20, random_state=0)
model = nbsketch.InputOutputKernelRegressor(
    nbsketch.GaussianKernel(bandwidth=15.0),
    nbsketch.GaussianKernel(bandwidth=3.0),
    sketch="subsampling",
    output_sketch="p-sparsified",
    random_state=0,
)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.8), layout="constrained")

path = select_output_size(model, Y[:1500], Y[1500:], [5, 8, 12, 16, 20, 30, 40])
path.plot(ax=left).set(xlabel="Size of the output sketch")

model.set_params(output_size=path.best())
data = X[:1500], Y[:1500], X[1500:], Y[1500:]
path = select_input_size(model, *data, [25, 50, 100, 200, 400, 800])
path.plot(ax=right).set(xlabel="Size of the input sketch")
plt.show()
