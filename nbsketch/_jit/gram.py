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
from functools import partial
from itertools import product

import numba
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from nbsketch._jit import threads
from nbsketch._jit.compiler import compiled, empty
from nbsketch._jit.threads import in_parallel

_SOURCES = (threads.__file__,)

SQUARED, ABSOLUTE, PRODUCT, MINIMUM, TANIMOTO = range(5)
EXPONENTIAL, MATERN_12, MATERN_32, MATERN_52, POWER, COMPLEMENT = range(6)
# Powers of degree 1, without a loop over the degree.
_FIRST_POWER = 6

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


def _call(builder, name, *args):
    """Call a function of LLVM on numbers or vectors of one type."""
    kind = args[0].type
    lanes = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    signature = ir.FunctionType(kind, [kind] * len(args))
    name = f"llvm.{name}.{lanes}f{_bits(kind)}"
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, args)


def _bits(kind):
    """Return the bits of a number or of an element of a vector."""
    real = kind.element if isinstance(kind, ir.VectorType) else kind
    return 64 if real == ir.DoubleType() else 32


def _broadcast(builder, value, kind):
    """Return a vector with the value in every lane, or the value for a number."""
    if kind == value.type:
        return value
    undefined = ir.Constant(kind, ir.Undefined)
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), None)
    single = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(single, undefined, zeros)


def _power_of_minus(builder, x):
    """Return 2^-x for x >= 0, at least the smallest normal number; NaN stays NaN."""
    kind = x.type
    bits = _bits(kind)
    whole = ir.IntType(bits)
    if isinstance(kind, ir.VectorType):
        whole = ir.VectorType(whole, kind.count)
    # Adding 1.5 * 2^mantissa rounds to an integer, left in the lowest bits.
    magic = ir.Constant(kind, 1.5 * 2.0 ** _MANTISSA[bits])
    x = _at_most(builder, x, _HIGHEST_EXPONENT[bits])
    shifted = builder.fsub(magic, x)
    r = builder.fadd(x, builder.fsub(shifted, magic))
    signed = [(-1) ** (k + 1) * c for k, c in enumerate(_EXP2[bits])]
    *others, value = [ir.Constant(kind, c) for c in signed]
    for c in (*reversed(others), ir.Constant(kind, 1.0)):
        value = _call(builder, "fmuladd", value, r, c)
    exponent = builder.shl(
        builder.bitcast(shifted, whole), ir.Constant(whole, _MANTISSA[bits])
    )
    return builder.bitcast(builder.add(builder.bitcast(value, whole), exponent), kind)


def _at_most(builder, x, number):
    """Return the lesser of x and a number; NaN stays NaN."""
    number = ir.Constant(x.type, number)
    return builder.select(builder.fcmp_ordered(">", x, number), number, x)


def _at_least_zero(builder, x):
    """Return x, 0 if it is negative; NaN stays NaN."""
    zero = ir.Constant(x.type, 0.0)
    return builder.select(builder.fcmp_ordered("<", x, zero), zero, x)


@intrinsic
def _exp2_minus(typingctx, x):
    """Return 2^-x: see `_power_of_minus`."""

    def codegen(context, builder, signature, args):
        return _power_of_minus(builder, args[0])

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
        return x, [_broadcast(b, value, self.vector) for value in y]

    def step(self, metric, x, y, total):
        """Return total + metric(x, y), or total * min(x, y)."""
        b = self.builder
        if metric == MINIMUM:
            return b.fmul(total, b.select(b.fcmp_ordered("<", x, y), x, y))
        if metric == PRODUCT:
            return _call(b, "fmuladd", x, y, total)
        difference = b.fsub(x, y)
        if metric == SQUARED:
            return _call(b, "fmuladd", difference, difference, total)
        return b.fadd(total, _call(b, "fabs", difference))

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
        metrics = PRODUCT, SQUARED, ABSOLUTE, MINIMUM
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
    kinds = rows, place, place, packed, place, sums, place, place
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


def _map(builder, function, n_bytes, *arrays):
    """Emit a loop that sets vectors of the first array to a function of all arrays.

    Vectors have `n_bytes` bytes, and the arrays have no other elements; 0 is for
    numbers. Loops over numbers, which LLVM vectorizes, would take 0.25 s longer to
    compile.
    """
    real = arrays[0].data.type.pointee
    size = _bits(real) // 8
    kind = ir.VectorType(real, n_bytes // size) if n_bytes else real
    count = arrays[0].nitems
    width = count.type(max(1, n_bytes // size))
    with cgutils.for_range(builder, builder.udiv(count, width)) as loop:
        first = builder.mul(loop.index, width)
        places = [builder.gep(array.data, [first]) for array in arrays]
        places = [builder.bitcast(place, kind.as_pointer()) for place in places]
        values = [builder.load(place, align=size) for place in places]
        builder.store(function(*values), places[0], align=size)


@intrinsic
def _use_norms(typingctx, metric, row_norms, landmark_norm, values):
    """Convert inner products to similarities or squared distances, in place."""

    def codegen(context, builder, signature, args):
        b = builder
        arrays = [
            context.make_array(kind)(context, b, array)
            for kind, array in ((values, args[3]), (row_norms, args[1]))
        ]

        def similarity(x, norms):
            union = b.fsub(b.fadd(norms, _broadcast(b, args[2], x.type)), x)
            positive = b.fcmp_ordered(">", union, ir.Constant(x.type, 0.0))
            return b.select(positive, b.fdiv(x, union), ir.Constant(x.type, 1.0))

        def square(x, norms):
            total = b.fadd(norms, _broadcast(b, args[2], x.type))
            return _at_least_zero(b, b.fsub(total, b.fadd(x, x)))

        is_tanimoto = b.icmp_signed("==", args[0], args[0].type(TANIMOTO))
        with b.if_else(is_tanimoto) as (then, otherwise):
            with then:
                _map(b, similarity, VECTOR, *arrays)
            with otherwise:
                _map(b, square, VECTOR, *arrays)
        return context.get_dummy_value()

    return types.void(types.intp, row_norms, values.dtype, values), codegen


def _kernel_values(builder, profile, degree, offset, x):
    """Return the kernel values of sums, vectors or numbers."""
    b = builder
    offset = _broadcast(b, offset, x.type)
    one = ir.Constant(x.type, 1.0)
    if profile == _FIRST_POWER:
        return b.fadd(x, offset)
    if profile == POWER:
        base = b.fadd(x, offset)
        power = cgutils.alloca_once_value(b, base)
        with cgutils.for_range(b, b.sub(degree, degree.type(1))):
            b.store(b.fmul(b.load(power), base), power)
        return b.load(power)
    if profile == COMPLEMENT:
        x = b.fmul(offset, _at_least_zero(b, b.fsub(one, x)))
    elif profile != EXPONENTIAL:
        x = _call(b, "sqrt", x)
    values = _power_of_minus(b, x)
    if profile not in (MATERN_32, MATERN_52):
        return values
    # Above, the exponential is constant, so the polynomial must be constant too.
    t = _at_most(b, x, _HIGHEST_EXPONENT[_bits(x.type)])
    ln2 = ir.Constant(x.type, math.log(2))
    if profile == MATERN_32:
        return b.fmul(_call(b, "fmuladd", ln2, t, one), values)
    u = b.fmul(ln2, t)
    inner = _call(b, "fmuladd", ir.Constant(x.type, 1 / 3), u, one)
    return b.fmul(_call(b, "fmuladd", u, inner, one), values)


def _profile_by(n_bytes):
    """Return the function that applies a profile to vectors of `n_bytes` bytes."""

    @intrinsic
    def apply_profile(typingctx, profile, degree, offset, values):
        """Convert sums to kernel values, in place."""

        def codegen(context, builder, signature, args):
            profile, degree, offset, array = args
            array = context.make_array(values)(context, builder, array)
            after = builder.append_basic_block("values")
            is_first = builder.and_(
                builder.icmp_signed("==", profile, profile.type(POWER)),
                builder.icmp_signed("==", degree, degree.type(1)),
            )
            first = profile.type(_FIRST_POWER)
            switch = builder.switch(builder.select(is_first, first, profile), after)
            for code in range(_FIRST_POWER + 1):
                block = builder.append_basic_block("profile")
                switch.add_case(code, block)
                builder.position_at_end(block)
                function = partial(_kernel_values, builder, code, degree, offset)
                _map(builder, function, n_bytes, array)
                builder.branch(after)
            builder.position_at_end(after)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, values.dtype, values), codegen

    return apply_profile


_apply_profile = _profile_by(VECTOR)
# For any number of sums.
_apply_to_numbers = _profile_by(0)


@compiled(sources=_SOURCES)
def fold(
    X, metric, profile, degree, expanded, offset, scale, shift, packed,
    landmark_norms, pointers, rows, values, out, width, triangle,
    first, last, together, loop,
):  # fmt: skip
    """Fill the columns of tiles `first` to `last` - 1 of `out`.

    `packed` and `landmark_norms` are the landmarks; `pointers`, `rows` and `values` are
    W by columns. All arithmetic has the dtype of the landmarks, to which rows are
    converted tile by tile. `triangle`: skip landmarks whose index exceeds the indices
    of all rows of the tile. Tuples of arrays would take 0.2 s to compile.
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
    scratch = empty((X.shape[1] + GROUP + 1) * width, packed.dtype)
    sums = X.shape[1] * width
    row_norms = _part(scratch, sums + GROUP * width, width)
    for tile in range(first, last):
        start = tile * width
        stop = min(start + width, n)
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
            row = _part(scratch, place, width)
            if expanded or metric == TANIMOTO:
                _use_norms(metric, row_norms, landmark_norms[landmark], row)
            begin = pointers[landmark]
            end = pointers[landmark + 1]
            fused = profile == EXPONENTIAL and end == begin + 1
            if not fused:
                _apply_profile(profile, degree, offset, row)
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
    _prefer_widest_vectors()
    profile, degree, offset = kernel
    pointers, columns, data = weights
    first = 4 * tile
    last = min(4 * tile + 4, values.shape[0])
    for i in range(first, last):
        _apply_to_numbers(profile, degree, offset, values[i])
    # Padding rows repeat the last row and are not used.
    v0 = values[first]
    v1 = values[min(first + 1, last - 1)]
    v2 = values[min(first + 2, last - 1)]
    v3 = values[last - 1]
    for r in range(pointers.size - 1):
        total = 0.0, 0.0, 0.0, 0.0
        for z in range(pointers[r], pointers[r + 1]):
            j = columns[z]
            w = data[z]
            t0, t1, t2, t3 = total
            total = t0 + w * v0[j], t1 + w * v1[j], t2 + w * v2[j], t3 + w * v3[j]
        for i in range(first, last):
            out[r, start + i] += total[i - first]


@compiled(sources=_SOURCES)
def finish(values, kernel, weights, out, start, first, last, together, loop):
    """Convert sums (n, m) to kernel values, in place, and add products to `out`.

    `kernel` is (profile, degree, offset), `weights` the arrays of a CSR matrix W of
    shape (s, m), where s may be 0: W values^T is added to the columns from `start` on.
    """
    if loop:
        in_parallel()
        return
    for tile in range(first, last):
        _finish_tile(values, kernel, weights, out, start, tile)
