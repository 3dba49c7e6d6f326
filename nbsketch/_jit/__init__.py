"""Every compiled function of nbsketch, and the only place that imports numba.

A compiled function calls only compiled functions of its own file, because the disk
cache does not see an edit in another one. It takes scalars, arrays and integer codes
(a function, closure or jitclass among its arguments would defeat the cache), fills
arrays that its caller made, and owns whole rows of them when it runs in parallel.
"""
