"""Every compiled function of nbsketch, and the only place that imports numba.

A compiled function calls only compiled functions of its own file, or of files that it
names, because the disk cache does not detect an edit in another one. It takes scalars,
arrays and integer codes (a function, closure or jitclass among its arguments would
defeat the cache), fills arrays that its caller made, and owns whole rows of them when
it runs in parallel.

Indices are not checked here: a bad one reads or writes outside of its array. Each index
that can come from a user or a file has one checked way in:

=============================  =========================  ==============================
Function                       Index                      Checked by
=============================  =========================  ==============================
sparse.fill_norms, fill        pointers and features of   `_validation.as_csr`, which
                               rows and of landmarks      `check_rows` and `Gram` use
gram.fold, gram.finish         pointers and rows of the   `Sketch` for its weights,
                               weights                    ``Gram @ B`` for a sparse B
transforms.add_hadamard        rows of the transform      `TransformSketch`
decoding.keep_best_*           none: positions of tiles   `TrainingOutputs.check` for
                                                          indices of outputs
products.add_combination       rows of a design           `Design._chosen`
sgm.run_steps, sgd.run_steps   order of the rows          drawn, not given
csr.fill_*, sgm.draw_rows      positions                  drawn, not given
=============================  =========================  ==============================

The parts of a model file come in through the same ways, and `nbsketch.files`
compares the lengths of arrays with each other. tests/test_bounds.py feeds bad indices
to each way, and ``NUMBA_BOUNDSCHECK=1`` makes numba check every access.
"""
