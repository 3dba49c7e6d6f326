"""Kernel tiles folded into a sketched product without storing kernel or tile.

``out[r, i] = sum_j W[r, j] k(x_i, l_j)``, one tile of rows ``i`` at a time. A tile of X
is scaled and transposed, so that vector lanes are rows of X; landmarks are packed in
groups; a micro-kernel in LLVM's vector IR keeps ``BLOCK`` vectors of rows times
``GROUP`` landmarks of partial sums in registers. One pass converts sums to kernel
values, and each landmark adds its row to the rows of the output given by its weights.

A kernel is a pair of codes: the metric is summed over the features, the profile is a
function of the sum. Scales are folded into X, so that exp(-t) is 2^-t.
"""

import math

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from nbsketch._jit import threads
from nbsketch._jit.compiler import compiled
from nbsketch._jit.threads import in_parallel

_SOURCES = (threads.__file__,)

SQUARED, ABSOLUTE, PRODUCT, MINIMUM, TANIMOTO = range(5)
EXPONENTIAL, MATERN_12, MATERN_32, MATERN_52, POWER, COMPLEMENT = range(6)

# 2^r = 1 + r (c_0 + c_1 r + ...) for |r| <= 1/2, interpolated at Chebyshev nodes:
# relative error 2e-17 (double) and 5e-9 (single), below rounding in both.
_EXP2 = {
    64: (
        0.6931471805599453,
        0.24022650695910097,
        0.0555041086648216,
        0.009618129107606888,
        0.0013333558146416936,
        0.0001540353044173605,
        1.525273382983612e-05,
        1.321544258792169e-06,
        1.0178062445845774e-07,
        7.072585949269223e-09,
        4.4549605981865186e-10,
    ),
    32: (
        0.6931471880262288,
        0.24022650760568126,
        0.05550357114219078,
        0.009618082557277852,
        0.0013390863364671234,
        0.0001545316294512069,
    ),
}
_MANTISSA = {64: 52, 32: 23}
_HIGHEST_EXPONENT = {64: 1022.0, 32: 126.0}


def _has_wide_vectors() -> bool:
    asked = numba.config.CPU_FEATURES
    if asked is not None:
        return "+avx512f" in asked
    return bool(binding.get_host_cpu_features().get("avx512f", False))


# Vector bytes, vectors of rows and landmarks per register block: they fit into 32
# registers of 64 bytes, or into 16 registers of 32 bytes.
VECTOR, BLOCK, GROUP = (64, 3, 8) if _has_wide_vectors() else (32, 2, 4)


def lanes(itemsize: int) -> int:
    """Return the number of rows of a register block; tiles are multiples of it."""
    return VECTOR * BLOCK // itemsize


def _float_type(bits: int) -> ir.Type:
    return ir.DoubleType() if bits == 64 else ir.FloatType()


def _fma(builder, kind, name, *args):
    function = ir.FunctionType(kind, [kind] * 3)
    name = f"llvm.fmuladd.{name}"
    return builder.call(
        cgutils.get_or_insert_function(builder.module, function, name), args
    )


def _broadcast(builder, value, lanes):
    """Return a vector with the value in every lane."""
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)
    single = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(single, undefined, zeros)


@intrinsic
def _exp2_minus(typingctx, x):
    """Return 2^-x for x >= 0, at least the smallest normal number; NaN stays NaN."""

    def codegen(context, builder, signature, args):
        bits = signature.return_type.bitwidth
        real = _float_type(bits)
        whole = ir.IntType(bits)
        highest = ir.Constant(real, _HIGHEST_EXPONENT[bits])
        # Adding 1.5 * 2^mantissa rounds to an integer, left in the lowest bits.
        magic = ir.Constant(real, 1.5 * 2.0 ** _MANTISSA[bits])
        x = builder.select(
            builder.fcmp_ordered(">", args[0], highest), highest, args[0]
        )
        shifted = builder.fsub(magic, x)
        r = builder.fadd(x, builder.fsub(shifted, magic))
        signed = [(-1) ** (k + 1) * c for k, c in enumerate(_EXP2[bits])]
        *others, value = [ir.Constant(real, c) for c in signed]
        for c in (*reversed(others), ir.Constant(real, 1.0)):
            value = _fma(builder, real, f"f{bits}", value, r, c)
        exponent = builder.shl(
            builder.bitcast(shifted, whole), ir.Constant(whole, _MANTISSA[bits])
        )
        return builder.bitcast(
            builder.add(builder.bitcast(value, whole), exponent), real
        )

    return x(x), codegen


class _Block:
    """Emits the loop over features of one register block of partial sums."""

    def __init__(self, context, builder, signature, args):
        self.builder = builder
        rows, self.x, self.width, packed, self.group, sums, self.place, self.stride = (
            args
        )
        rows_type, _, _, packed_type, _, sums_type, *_ = signature.args
        self.bits = rows_type.dtype.bitwidth
        self.size = self.bits // 8
        self.lanes = VECTOR // self.size
        self.vector = ir.VectorType(_float_type(self.bits), self.lanes)
        self.rows = context.make_array(rows_type)(context, builder, rows).data
        self.sums = context.make_array(sums_type)(context, builder, sums).data
        landmarks = context.make_array(packed_type)(context, builder, packed)
        self.packed = landmarks.data
        self.n_features = cgutils.unpack_tuple(builder, landmarks.shape)[1]

    def _at(self, base, offset, kind):
        address = self.builder.gep(base, [offset])
        return self.builder.bitcast(address, kind.as_pointer())

    def _index(self, k, stride, offset):
        b = self.builder
        constant = ir.Constant(ir.IntType(64), offset)
        return b.add(b.mul(k, stride), constant)

    def load(self, k):
        """Load the vectors of rows of feature k."""
        for m in range(BLOCK):
            index = self._index(k, self.width, m * self.lanes)
            index = self.builder.add(index, self.x)
            loaded = self.builder.load(self._at(self.rows, index, self.vector))
            loaded.align = self.size
            yield loaded

    def landmark(self, k, j):
        """Load feature k of landmark j into every lane."""
        b = self.builder
        real = _float_type(self.bits)
        group = ir.Constant(ir.IntType(64), GROUP)
        row = b.add(b.mul(self.group, self.n_features), k)
        one = b.load(self._at(self.packed, self._index(row, group, j), real))
        return _broadcast(b, one, self.lanes)

    def step(self, metric, x, y, total):
        """Return total + metric(x, y), or total * min(x, y)."""
        b = self.builder
        name = f"v{self.lanes}f{self.bits}"
        if metric == MINIMUM:
            return b.fmul(total, b.select(b.fcmp_ordered("<", x, y), x, y))
        if metric == PRODUCT:
            return _fma(b, self.vector, name, x, y, total)
        difference = b.fsub(x, y)
        if metric == SQUARED:
            return _fma(b, self.vector, name, difference, difference, total)
        magnitude = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(self.vector, [self.vector]), f"llvm.fabs.{name}"
        )
        return b.fadd(total, b.call(magnitude, [difference]))

    def store(self, j, m, total):
        """Write one vector of sums of landmark j."""
        j = ir.Constant(ir.IntType(64), j)
        index = self._index(j, self.stride, m * self.lanes)
        index = self.builder.add(index, self.place)
        stored = self.builder.store(total, self._at(self.sums, index, self.vector))
        stored.align = self.size

    def emit(self, metric):
        """Emit the loop and the stores of its sums, or products of minima."""
        b = self.builder
        i64 = ir.IntType(64)
        before = b.block
        loop = b.append_basic_block("features")
        after = b.append_basic_block("sums")
        b.branch(loop)
        b.position_at_end(loop)
        k = b.phi(i64)
        k.add_incoming(ir.Constant(i64, 0), before)
        cells = [(j, m) for j in range(GROUP) for m in range(BLOCK)]
        totals = {cell: b.phi(self.vector) for cell in cells}
        x = list(self.load(k))
        y = [self.landmark(k, j) for j in range(GROUP)]
        following = b.add(k, ir.Constant(i64, 1))
        k.add_incoming(following, loop)
        new = {(j, m): self.step(metric, x[m], y[j], totals[j, m]) for j, m in cells}
        start = ir.Constant(self.vector, [float(metric == MINIMUM)] * self.lanes)
        for cell in cells:
            totals[cell].add_incoming(start, before)
            totals[cell].add_incoming(new[cell], loop)
        b.cbranch(b.icmp_signed("<", following, self.n_features), loop, after)
        b.position_at_end(after)
        for j, m in cells:
            self.store(j, m, new[j, m])


@intrinsic
def _sum_features(
    typingctx, metric, rows, x, width, packed, group, sums, place, stride
):
    """Set sums[place + j stride + lane] for the landmarks j of one group.

    Feature k of the rows, one per lane, starts at rows[x + k width].
    """

    def codegen(context, builder, signature, args):
        block = _Block(context, builder, signature.replace(args=kinds), args[1:])
        other = builder.append_basic_block("product")
        after = builder.append_basic_block("done")
        switch = builder.switch(args[0], other)
        for code in (SQUARED, ABSOLUTE, MINIMUM):
            case = builder.append_basic_block("metric")
            switch.add_case(ir.Constant(args[0].type, code), case)
            builder.position_at_end(case)
            block.emit(code)
            builder.branch(after)
        builder.position_at_end(other)
        block.emit(PRODUCT)
        builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    place = types.intp
    kinds = (rows, place, place, packed, place, sums, place, place)
    return types.void(types.intp, *kinds), codegen


@compiled()
def _expand(row_norms, landmark_norm, values):
    """Convert inner products to squared distances, in place."""
    zero = landmark_norm - landmark_norm
    for i in range(values.size):
        square = row_norms[i] + landmark_norm - (values[i] + values[i])
        values[i] = zero if square < zero else square


@compiled()
def _normalize(one, row_norms, landmark_norm, values):
    """Convert inner products to Tanimoto similarities, in place."""
    for i in range(values.size):
        union = row_norms[i] + landmark_norm - values[i]
        values[i] = values[i] / union if union > 0 else one


@compiled()
def _apply_profile(profile, degree, numbers, values):
    """Convert the sums of one landmark to kernel values, in place."""
    one = numbers[0]
    ln2 = numbers[1]
    offset = numbers[2]
    highest = numbers[3]
    if profile == EXPONENTIAL:
        for i in range(values.size):
            values[i] = _exp2_minus(values[i])
    elif profile == MATERN_12:
        for i in range(values.size):
            values[i] = _exp2_minus(math.sqrt(values[i]))
    elif profile == MATERN_32:
        for i in range(values.size):
            # Above, the exponential is constant, so the polynomial must be constant
            # too.
            root = math.sqrt(values[i])
            t = highest if root > highest else root
            values[i] = (one + ln2 * t) * _exp2_minus(t)
    elif profile == MATERN_52:
        third = one / (one + one + one)
        for i in range(values.size):
            root = math.sqrt(values[i])
            t = highest if root > highest else root
            u = ln2 * t
            values[i] = (one + u * (one + third * u)) * _exp2_minus(t)
    elif profile == COMPLEMENT:
        for i in range(values.size):
            rest = one - values[i]
            rest = one - one if one - one > rest else rest
            values[i] = _exp2_minus(offset * rest)
    else:
        for i in range(values.size):
            base = values[i] + offset
            power = base
            for _ in range(degree - 1):
                power *= base
            values[i] = power


@compiled()
def _add(weight, values, target):
    for i in range(target.size):
        target[i] += weight * values[i]


@compiled()
def _add_exponential(weight, sums, target):
    for i in range(target.size):
        target[i] += weight * _exp2_minus(sums[i])


@compiled()
def _transpose(X, start, stop, scale, shift, width, XT):
    """Write (X - shift) * scale, one row per feature, and last its squared norms.

    Padding rows repeat the last row and are not used.
    """
    for i in range(width):
        row = start + i if start + i < stop else stop - 1
        norm = scale[0] - scale[0]
        for k in range(X.shape[1]):
            value = (X[row, k] - shift[k]) * scale[k]
            XT[k * width + i] = value
            norm += value * value
        XT[XT.size - width + i] = norm


@compiled(sources=_SOURCES)
def fold(
    X, kernel, landmarks, weights, out, width, triangle, first, last, together, loop
):
    """Fill the columns of tiles `first` to `last` - 1 of `out`.

    `kernel` is (metric, profile, degree, expanded, numbers, scale, shift), `landmarks`
    (packed, norms) and `weights` (pointers, rows, values): W by columns. `numbers` are
    1, log 2, the offset and the highest exponent. All arithmetic has the dtype of the
    landmarks, to which rows are converted tile by tile. `triangle`: skip landmarks
    whose index exceeds the indices of all rows of the tile.
    """
    if loop:
        in_parallel()
        return
    metric, profile, degree, expanded, numbers, scale, shift = kernel
    packed, landmark_norms = landmarks
    pointers, rows, values = weights
    count = pointers.size - 1
    step = VECTOR * BLOCK // packed.itemsize
    # Features of rows, sums and norms. Slices of more dimensions, assignments to them
    # and other arrays would take 0.1 to 0.3 s each to compile.
    scratch = np.empty((X.shape[1] + GROUP + 1) * width, packed.dtype)
    sums = X.shape[1] * width
    row_norms = scratch[sums + GROUP * width :]
    for tile in range(first, last):
        start = tile * width
        stop = start + width if start + width < X.shape[0] else X.shape[0]
        _transpose(X, start, stop, scale, shift, width, scratch)
        for r in range(out.shape[0]):
            target = out[r, start:stop]
            for i in range(target.size):
                target[i] = 0.0
        for landmark in range(stop if triangle and stop < count else count):
            group = landmark // GROUP
            place = sums + (landmark - group * GROUP) * width
            if place == sums:
                for i in range(0, width, step):
                    _sum_features(
                        metric, scratch, i, width, packed, group,
                        scratch, sums + i, width,
                    )  # fmt: skip
            row = scratch[place : place + stop - start]
            if metric == TANIMOTO:
                _normalize(numbers[0], row_norms, landmark_norms[landmark], row)
            elif expanded:
                _expand(row_norms, landmark_norms[landmark], row)
            begin = pointers[landmark]
            end = pointers[landmark + 1]
            if profile == EXPONENTIAL and end == begin + 1:
                _add_exponential(values[begin], row, out[rows[begin], start:stop])
            else:
                _apply_profile(profile, degree, numbers, row)
                for z in range(begin, end):
                    _add(values[z], row, out[rows[z], start:stop])


@compiled()
def _finish_tile(values, kernel, weights, out, start, tile):
    profile, degree, numbers = kernel
    pointers, columns, data = weights
    first = 4 * tile
    last = min(4 * tile + 4, values.shape[0])
    for i in range(first, last):
        _apply_profile(profile, degree, numbers, values[i])
    # Padding rows repeat the last row and are not used.
    v0 = values[first]
    v1 = values[min(first + 1, last - 1)]
    v2 = values[min(first + 2, last - 1)]
    v3 = values[last - 1]
    zero = numbers[0] - numbers[0]
    for r in range(pointers.size - 1):
        total = (zero, zero, zero, zero)
        for z in range(pointers[r], pointers[r + 1]):
            j = columns[z]
            w = data[z]
            t0, t1, t2, t3 = total
            total = (t0 + w * v0[j], t1 + w * v1[j], t2 + w * v2[j], t3 + w * v3[j])
        for i in range(first, last):
            out[r, start + i] += total[i - first]


@compiled(sources=_SOURCES)
def finish(values, kernel, weights, out, start, first, last, together, loop):
    """Convert sums (n, m) to kernel values, in place, and add products to `out`.

    `kernel` is (profile, degree, numbers), `weights` the arrays of a CSR matrix W of
    shape (s, m), where s may be 0: W values^T is added to the columns from `start` on.
    """
    if loop:
        in_parallel()
        return
    for tile in range(first, last):
        _finish_tile(values, kernel, weights, out, start, tile)
