"""Products with a symmetric kernel matrix; each tile is used for both triangles.

Rows are divided into an odd number B of blocks. The pairs of blocks (a, b) with a + b =
r (mod B) have no block in common, so all pairs of round r run in parallel, each adding
K_ab v_b to u_a and K_ba v_a to u_b. Sums are in the order of the rounds for any number
of threads; threads need no accumulators.

Kernel values are float32 or float64, products and sums are float64.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from nbsketch._jit import gram, threads
from nbsketch._jit.compiler import compiled, empty
from nbsketch._jit.gram import (
    BLOCK,
    GROUP,
    TANIMOTO,
    VECTOR,
    _apply_profile,
    _broadcast,
    _call,
    _float_type,
    _part,
    _sum_features,
    _use_norms,
)
from nbsketch._jit.threads import in_parallel

# Kernel values are computed and discarded, computed and stored, or read.
MAKE, STORE, READ = range(3)

# Doubles in a vector.
LANES = VECTOR // 8

_SOURCES = gram.__file__, threads.__file__


@compiled(inline="always")
def _fill_strip(
    metric, profile, degree, expanded, offset,
    rows, packed, norms, start, height, group, strip,
):  # fmt: skip
    """Set strip[(t, j, lane)] = k(x_i, x_j), i in tile t, for the rows j of one group.

    The rows i are the `height` rows from `start` on.
    """
    width = VECTOR * BLOCK // rows.itemsize
    x = start * packed.shape[1]
    for i in range(0, height, width):
        place = i * GROUP
        _sum_features(metric, rows, x + i, height, packed, group, strip, place, width)
        if expanded or metric == TANIMOTO:
            own = _part(norms, start + i, width)
            for j in range(GROUP):
                norm = norms[group * GROUP + j]
                values = _part(strip, place + j * width, width)
                _use_norms(metric, own, norm, values)
    _apply_profile(profile, degree, offset, strip)


def _plus(builder, index, constant):
    return builder.add(index, ir.Constant(ir.IntType(64), constant))


class _Products:
    """Emits the products of a tile of a strip with both vectors."""

    def __init__(self, context, builder, signature, args):
        self.builder = builder
        self.bits = signature.args[0].dtype.bitwidth
        pairs = zip(signature.args[:4], args[:4], strict=True)
        arrays = [context.make_array(k)(context, builder, a).data for k, a in pairs]
        self.strip, self.V, self.U, self.S = arrays
        self.place, self.v, self.x, self.u, self.s = args[4:]
        self.parts = VECTOR * BLOCK // (self.bits // 8) // LANES

    def at(self, base, index, real):
        """Return the address and the type of the vector that starts at an element."""
        kind = ir.VectorType(real, LANES)
        return self.builder.bitcast(self.builder.gep(base, [index]), kind.as_pointer())

    def load(self, base, index, bits=64):
        loaded = self.builder.load(self.at(base, index, _float_type(bits)))
        loaded.align = bits // 8
        return loaded

    def store(self, value, base, index):
        self.builder.store(value, self.at(base, index, ir.DoubleType())).align = 8

    def values(self, j):
        """Return the kernel values of row j of the tile, as vectors of doubles."""
        b = self.builder
        first = j * self.parts * LANES
        for k in range(self.parts):
            index = _plus(b, self.place, first + k * LANES)
            value = self.load(self.strip, index, self.bits)
            double = ir.VectorType(ir.DoubleType(), LANES)
            yield value if self.bits == 64 else b.fpext(value, double)

    def broadcast(self, j):
        """Return element j of v in every lane."""
        b = self.builder
        one = b.load(b.gep(self.V, [_plus(b, self.v, j)]))
        return _broadcast(b, one, ir.VectorType(ir.DoubleType(), LANES))

    def emit(self):
        """Emit the loads, the fused sums, unrolled, and the stores."""
        b = self.builder
        places = [k * LANES for k in range(self.parts)]
        x = [self.load(self.V, _plus(b, self.x, k)) for k in places]
        u = [self.load(self.U, _plus(b, self.u, k)) for k in places]
        for j in range(GROUP):
            index = _plus(b, self.s, j * LANES)
            v = self.broadcast(j)
            s = self.load(self.S, index)
            for k, value in enumerate(self.values(j)):
                u[k] = _call(b, "fmuladd", v, value, u[k])
                s = _call(b, "fmuladd", x[k], value, s)
            self.store(s, self.S, index)
        for k, total in zip(places, u, strict=True):
            self.store(total, self.U, _plus(b, self.u, k))


@intrinsic
def _multiply(typingctx, strip, V, U, S, place, v, x, u, s):
    """Add v^T tile to u, and tile * x (not summed over lanes) to s.

    The integers are positions of first elements in the strip of tiles, V, U and S.
    """

    def codegen(context, builder, signature, args):
        _Products(context, builder, signature, args).emit()
        return context.get_dummy_value()

    places = (types.intp,) * 5
    return types.void(strip, V, U, S, *places), codegen


@compiled()
def _clear(values):
    """Set to zero in a loop: assigning to a slice would take seconds to compile."""
    for i in range(values.size):
        values[i] = 0.0


@compiled(sources=_SOURCES)
def multiply(
    metric, profile, degree, expanded, offset, rows, packed, norms, V, out, store,
    mode, blocks, places, first, last, together, loop,
):  # fmt: skip
    """Add V K to `out` (d, n) for the pairs `first` to `last` - 1, round by round.

    `rows`, (q, height) of each block in turn, and `packed` (groups, q, GROUP) are the
    scaled rows in two layouts, `norms` their squared norms; `blocks` (B + 1,) are the
    first rows of blocks, `places` (B, pairs) the positions of the values of a pair in
    `store`.
    """
    if loop:
        in_parallel()
        return
    count = blocks.size - 1
    for pair in range(first, last):
        r = pair // places.shape[1]
        t = pair % places.shape[1]
        a = (r + t) % count
        b = (r - t) % count
        place = places[r, t]
        start = blocks[a]
        height = blocks[a + 1] - blocks[a]
        n_columns = V.shape[0]
        m = V.shape[1]
        width = VECTOR * BLOCK // rows.itemsize
        made = empty(GROUP * height, rows.dtype)
        u = empty(n_columns * height, V.dtype)
        _clear(u)
        # The second half excludes values that tiles on the diagonal have already added
        # to u.
        s = empty(2 * n_columns * GROUP * LANES, V.dtype)
        for j in range(blocks[b], blocks[b + 1], GROUP):
            strip = made if mode == MAKE else _part(store, place, made.size)
            place += made.size
            if mode != READ:
                group = j // GROUP
                _fill_strip(
                    metric, profile, degree, expanded, offset,
                    rows, packed, norms, start, height, group, strip,
                )  # fmt: skip
            _clear(s)
            diagonal = j // width * width - start if a == b else height
            past = diagonal + width if diagonal < height else height
            for c in range(n_columns):
                for i in range(0, past, width):
                    x = c * m + start + i
                    at = c * height + i
                    to = (c + n_columns if i == diagonal else c) * GROUP * LANES
                    _multiply(strip, V, u, s, i * GROUP, c * m + j, x, at, to)
            for c in range(n_columns):
                for k in range(GROUP):
                    for lane in range(LANES):
                        out[c, j + k] += s[(c * GROUP + k) * LANES + lane]
        for c in range(n_columns):
            for i in range(height):
                out[c, start + i] += u[c * height + i]
