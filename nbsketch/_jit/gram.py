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
from itertools import product

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

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
    """Emits loops over the features of one register block of partial sums."""

    cells = tuple((j, m) for j in range(GROUP) for m in range(BLOCK))

    def __init__(self, context, builder, signature, args):
        self.builder = builder
        rows, x, self.width, packed, group, sums, place, self.stride = args
        rows_type, _, _, packed_type, _, sums_type, *_ = signature.args
        bits = rows_type.dtype.bitwidth
        self.size = bits // 8
        self.lanes = VECTOR // self.size
        self.name = f"v{self.lanes}f{bits}"
        self.vector = ir.VectorType(_float_type(bits), self.lanes)
        landmarks = context.make_array(packed_type)(context, builder, packed)
        self.n_features = cgutils.unpack_tuple(builder, landmarks.shape)[1]
        self.packed = self._row(landmarks.data, group, self._times(self.n_features))
        rows = context.make_array(rows_type)(context, builder, rows)
        self.rows = builder.gep(rows.data, [x])
        sums = context.make_array(sums_type)(context, builder, sums)
        self.sums = builder.gep(sums.data, [place])

    def _times(self, number):
        return self.builder.mul(number, ir.IntType(64)(GROUP))

    def _row(self, base, k, length):
        return self.builder.gep(base, [self.builder.mul(k, length)])

    def _at(self, base, m):
        """Return the address of vector m."""
        address = self.builder.gep(base, [ir.IntType(64)(m * self.lanes)])
        return self.builder.bitcast(address, self.vector.as_pointer())

    def load(self, k):
        """Return the vectors of rows of feature k, and that of each landmark."""
        b = self.builder
        row = self._row(self.rows, k, self.width)
        x = [b.load(self._at(row, m), align=self.size) for m in range(BLOCK)]
        row = b.gep(self.packed, [self._times(k)])
        y = [b.load(b.gep(row, [ir.IntType(64)(j)])) for j in range(GROUP)]
        return x, [_broadcast(b, value, self.lanes) for value in y]

    def step(self, metric, x, y, total):
        """Return total + metric(x, y), or total * min(x, y)."""
        b = self.builder
        if metric == MINIMUM:
            return b.fmul(total, b.select(b.fcmp_ordered("<", x, y), x, y))
        if metric == PRODUCT:
            return _fma(b, self.vector, self.name, x, y, total)
        difference = b.fsub(x, y)
        if metric == SQUARED:
            return _fma(b, self.vector, self.name, difference, difference, total)
        kind = ir.FunctionType(self.vector, [self.vector])
        name = f"llvm.fabs.{self.name}"
        magnitude = cgutils.get_or_insert_function(b.module, kind, name)
        return b.fadd(total, b.call(magnitude, [difference]))

    def loop(self, metric, before, after):
        """Emit the loop of one metric; return its sums, or products of minima."""
        b = self.builder
        loop = b.block
        k = b.phi(ir.IntType(64))
        totals = {cell: b.phi(self.vector) for cell in self.cells}
        x, y = self.load(k)
        following = b.add(k, ir.IntType(64)(1))
        k.add_incoming(ir.IntType(64)(0), before)
        k.add_incoming(following, loop)
        start = ir.Constant(self.vector, [float(metric == MINIMUM)] * self.lanes)
        new = {(j, m): self.step(metric, x[m], y[j], totals[j, m]) for j, m in totals}
        for cell, total in totals.items():
            total.add_incoming(start, before)
            total.add_incoming(new[cell], loop)
        b.cbranch(b.icmp_signed("<", following, self.n_features), loop, after)
        return new

    def emit(self, code):
        """Emit the loops of all metrics and the stores of the sums."""
        b = self.builder
        before = b.block
        metrics = (PRODUCT, SQUARED, ABSOLUTE, MINIMUM)
        loops = [b.append_basic_block("features") for _ in metrics]
        after = b.append_basic_block("sums")
        switch = b.switch(code, loops[0])
        sums = {}
        for metric, loop in zip(metrics, loops, strict=True):
            if metric != PRODUCT:
                switch.add_case(metric, loop)
            b.position_at_end(loop)
            sums[loop] = self.loop(metric, before, after)
        b.position_at_end(after)
        totals = {cell: b.phi(self.vector) for cell in self.cells}
        for (cell, total), loop in product(totals.items(), loops):
            total.add_incoming(sums[loop][cell], loop)
        for (j, m), total in totals.items():
            row = self._row(self.sums, ir.IntType(64)(j), self.stride)
            b.store(total, self._at(row, m), align=self.size)


@intrinsic
def _sum_features(
    typingctx, metric, rows, x, width, packed, group, sums, place, stride
):
    """Set sums[place + j stride + lane] for the landmarks j of one group.

    Feature k of the rows, one per lane, starts at rows[x + k width].
    """

    def codegen(context, builder, signature, args):
        kinds = signature.replace(args=signature.args[1:])
        _Block(context, builder, kinds, args[1:]).emit(args[0])
        return context.get_dummy_value()

    place = types.intp
    kinds = (rows, place, place, packed, place, sums, place, place)
    return types.void(types.intp, *kinds), codegen


@intrinsic
def _part(typingctx, values, first, size):
    """Return `size` elements of a contiguous array from a flat position, as a view.

    Slices, which check bounds, would take longer to compile.
    """
    if values.layout != "C":
        raise TypingError("the array must be C-contiguous")

    def codegen(context, builder, signature, args):
        whole = context.make_array(values)(context, builder, args[0])
        part = context.make_array(signature.return_type)(context, builder)
        populate_array(
            part,
            data=builder.gep(whole.data, [args[1]]),
            shape=[args[2]],
            strides=[whole.itemsize],
            itemsize=whole.itemsize,
            meminfo=whole.meminfo,
        )
        view = part._getvalue()
        return impl_ret_borrowed(context, builder, signature.return_type, view)

    part = types.Array(values.dtype, 1, "C")
    return part(values, types.intp, types.intp), codegen


@intrinsic
def _prefer_widest_vectors(typingctx):
    """Vectorize the loops of the calling function with `VECTOR` bytes.

    By default LLVM uses 32 bytes, with half of the throughput of exponentials.
    """

    def codegen(context, builder, signature, args):
        # Llvmlite has no method for attributes of one target.
        width = f'"prefer-vector-width"="{8 * VECTOR}"'
        set.add(builder.function.attributes, width)
        return context.get_dummy_value()

    return types.void(), codegen


@compiled()
def _use_norms(metric, one, row_norms, landmark_norm, values):
    """Convert inner products to similarities or squared distances, in place."""
    if metric == TANIMOTO:
        for i in range(values.size):
            union = row_norms[i] + landmark_norm - values[i]
            values[i] = values[i] / union if union > 0 else one
    else:
        zero = one - one
        for i in range(values.size):
            square = row_norms[i] + landmark_norm - (values[i] + values[i])
            values[i] = zero if square < zero else square


@compiled()
def _apply_profile(profile, degree, numbers, values):
    """Convert the sums of one landmark to kernel values, in place."""
    _prefer_widest_vectors()
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


@compiled(sources=_SOURCES)
def fold(
    X, metric, profile, degree, expanded, numbers, scale, shift, packed,
    landmark_norms, pointers, rows, values, out, width, triangle,
    first, last, together, loop,
):  # fmt: skip
    """Fill the columns of tiles `first` to `last` - 1 of `out`.

    `numbers` are 1, log 2, the offset and the highest exponent, `packed` and
    `landmark_norms` the landmarks; `pointers`, `rows` and `values` are W by columns.
    All arithmetic has the dtype of the landmarks, to which rows are converted tile by
    tile. `triangle`: skip landmarks whose index exceeds the indices of all rows of the
    tile. Tuples of arrays would take 0.2 s to compile.
    """
    _prefer_widest_vectors()
    if loop:
        in_parallel()
        return
    count = pointers.size - 1
    n = X.shape[0]
    step = VECTOR * BLOCK // packed.itemsize
    # Features of rows, sums and norms. Slices, assignments to them and other arrays
    # would take 0.1 to 0.3 s each to compile.
    scratch = np.empty((X.shape[1] + GROUP + 1) * width, packed.dtype)
    sums = X.shape[1] * width
    row_norms = _part(scratch, sums + GROUP * width, width)
    for tile in range(first, last):
        start = tile * width
        stop = start + width if start + width < n else n
        size = stop - start
        # Padding rows repeat the last row and are not used.
        for i in range(width):
            j = start + i if i < size else stop - 1
            norm = scale[0] - scale[0]
            for k in range(X.shape[1]):
                value = (X[j, k] - shift[k]) * scale[k]
                scratch[k * width + i] = value
                norm += value * value
            row_norms[i] = norm
        for r in range(out.shape[0]):
            target = _part(out, r * n + start, size)
            for i in range(size):
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
            row = _part(scratch, place, size)
            if expanded or metric == TANIMOTO:
                norm = landmark_norms[landmark]
                _use_norms(metric, numbers[0], row_norms, norm, row)
            begin = pointers[landmark]
            end = pointers[landmark + 1]
            fused = profile == EXPONENTIAL and end == begin + 1
            if not fused:
                _apply_profile(profile, degree, numbers, row)
            for z in range(begin, end):
                weight = values[z]
                target = _part(out, rows[z] * n + start, size)
                if fused:
                    for i in range(size):
                        target[i] += weight * _exp2_minus(row[i])
                else:
                    for i in range(size):
                        target[i] += weight * row[i]


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
