"""All compiled functions of nbsketch; the only module that imports numba.

A compiled function calls only compiled functions of its own file, or of files that it
declares, because the disk cache does not detect edits of other files. It takes scalars,
arrays and integer codes (functions, closures or jitclasses as arguments would defeat
the cache), fills arrays allocated by its caller, and owns whole rows of them when it
runs in parallel.

Indices are not checked here: an invalid index reads or writes outside of its array.
Each index that can come from a user or a file is checked at one place:

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
partition.tree_sums            nodes, leaves, outputs     `BoostedTrees`
=============================  =========================  ==============================

The parts of a model file are checked in the same places, and `nbsketch.files` compares
the lengths of arrays with each other. tests/test_bounds.py passes invalid indices to
each of them, and ``NUMBA_BOUNDSCHECK=1`` makes numba check every access.
"""
