"""The inner loops of the filter bank in volumes: slice by slice, on lines that stay in the cache.

Each output voxel is the same sum in the same order wherever the volume was cut, so tiles agree bit for bit.
Weights are (3, 1+R) as in `filters`: `across` slices, and `along` the rows and columns of a slice. A source is flat:
slices padded in the plane, one after the other. `places` (1+2R,) says where the slices at distances -R..R begin, so
that mirrored slices need no copies. Nothing is checked here.
"""

import numpy as np

from hedgerow.kernels.compiling import kernel
from hedgerow.kernels.cpu.filters import LINE_NUMBERS, filter_line, filter_planes, rows_at_once, smooth_window

TINY = 1e-300
ROOT_3 = float(np.sqrt(3.0))


@kernel
def mirrored(plane, rows, columns, left, out):
    """Fill out (H,W) with these rows and columns of a plane (h,w), of which w from `left` on are those of the plane."""
    end = left + plane.shape[1]
    for r in range(rows.shape[0]):
        source, target = plane[rows[r]], out[r]
        for c in range(left):
            target[c] = source[columns[c]]
        target[left:end] = source
        for c in range(end, columns.shape[0]):
            target[c] = source[columns[c]]


@kernel
def filter_across(source, places, narrow_places, across, narrow, is_inside, planes):
    """Fill planes (n,4,m) with the Gaussian and its two derivatives across slices, and the narrower Gaussian, of n
    slices; with the first two only where not inside.

    Line by line of all of them, since most of the slices that they read are the same.
    """
    _, _, size = planes.shape
    for start in range(0, size, LINE_NUMBERS):
        end = min(start + LINE_NUMBERS, size)
        n = end - start
        for k in range(planes.shape[0]):
            p0, p1, p2 = planes[k, 0, start:end], planes[k, 1, start:end], planes[k, 2, start:end]
            if is_inside[k]:
                filter_planes(source, places[k], start, n, across, p0, p1, p2)
                filter_planes(source, narrow_places[k], start, n, narrow, planes[k, 3, start:end], None, None)
            else:
                filter_planes(source, places[k], start, n, across, p0, p1, None)


@kernel
def slice_derivatives(planes, along, narrow, stride, products, top, left, out, z):
    """Fill products (6,H,W) with the gradient products zz, zy, zx, yy, yx, xx of a slice, and slice z of out (10,d,h,w)
    with Gaussian, Laplacian, gradient magnitude, `dog`, -, -, -, and the eigenvalues of the Hessian, high to low.

    planes:        (4,n) of the slice, from `filter_across`, in rows of length `stride`
    along, narrow: weights along rows and columns
    top, left:     row and column of the products where `out` begins
    z:             -1 to compute the products only
    """
    radius = along.shape[1] - 1
    _, height, width = products.shape
    rows_of_out = out.shape[2]
    n_rows = rows_at_once(stride)
    down, lines = np.empty((6, n_rows * stride), np.float32), np.empty((4, n_rows * stride), np.float32)
    hessian = np.empty((6, n_rows * stride), np.float32)
    for first in range(0, height, n_rows):
        end = min(first + n_rows, height)
        centre, n = (first + radius) * stride, (end - first) * stride
        filter_line(planes[0], centre, stride, n, along, down[0], down[1], down[2])
        filter_line(planes[1], centre, stride, n, along, down[3], down[4], None)
        n -= stride - width
        filter_line(down[0], radius, 1, n, along, lines[0], lines[3], hessian[5])
        filter_line(down[1], radius, 1, n, along, lines[2], hessian[4], None)
        filter_line(down[3], radius, 1, n, along, lines[1], hessian[2], None)
        for row in range(first, end):
            _products(lines, (row - first) * stride, products, row)
        if z >= 0 and first < top + rows_of_out and top < end:
            filter_line(planes[2], centre, stride, (end - first) * stride, along, down[5], None, None)
            filter_line(down[2], radius, 1, n, along, hessian[3], None, None)
            filter_line(down[4], radius, 1, n, along, hessian[1], None, None)
            filter_line(down[5], radius, 1, n, along, hessian[0], None, None)
            for row in range(max(first, top), min(end, top + rows_of_out)):
                shift, r = (row - first) * stride + left, row - top
                _simple_filters(lines, hessian, shift, out[0, z, r], out[1, z, r], out[2, z, r])
                eigenvalues(hessian, shift, out[7, z, r], out[8, z, r], out[9, z, r])
    if z >= 0:
        smooth_window(planes[3], stride, top + radius, left + radius, narrow, out[3, z])
        for r in range(rows_of_out):
            _subtract(out[3, z, r], out[0, z, r])


@kernel
def _subtract(values, others):
    for i in range(values.shape[0]):
        values[i] -= others[i]


@kernel
def _products(gradient, shift, products, row):
    """gradient (4,n): its lines 1 to 3 are the derivatives along z, y and x."""
    width = products.shape[2]
    end = shift + width
    z, y, x = gradient[1, shift:end], gradient[2, shift:end], gradient[3, shift:end]
    zz, zy, zx = products[0, row], products[1, row], products[2, row]
    yy, yx, xx = products[3, row], products[4, row], products[5, row]
    for i in range(width):
        zz[i] = z[i] * z[i]
        zy[i] = z[i] * y[i]
        zx[i] = z[i] * x[i]
        yy[i] = y[i] * y[i]
        yx[i] = y[i] * x[i]
        xx[i] = x[i] * x[i]


@kernel
def _simple_filters(lines, hessian, shift, gaussian, laplacian, magnitude):
    """lines (4,n): the Gaussian and its derivatives along z, y and x."""
    end = shift + gaussian.shape[0]
    smooth, z, y, x = lines[0, shift:end], lines[1, shift:end], lines[2, shift:end], lines[3, shift:end]
    zz, yy, xx = hessian[0, shift:end], hessian[3, shift:end], hessian[5, shift:end]
    for i in range(gaussian.shape[0]):
        gaussian[i] = smooth[i]
        laplacian[i] = zz[i] + yy[i] + xx[i]
        magnitude[i] = np.sqrt(z[i] * z[i] + y[i] * y[i] + x[i] * x[i])


@kernel
def eigenvalues(matrices, shift, high, middle, low):
    """The eigenvalues (n,) of symmetric matrices (6,m), zz zy zx yy yx xx, from `shift` on.

    With q the mean of the diagonal, the matrix minus q has the eigenvalues 2 p cos(acos(r) / 3 + 2 k pi / 3). In double
    precision, and with the sine of the angle computed from 1 - |r|, the digits that cancel where two eigenvalues nearly
    agree are not missed in single precision.
    """
    end = shift + high.shape[0]
    zz, zy, zx = matrices[0, shift:end], matrices[1, shift:end], matrices[2, shift:end]
    yy, yx, xx = matrices[3, shift:end], matrices[4, shift:end], matrices[5, shift:end]
    for i in range(high.shape[0]):
        a, b, c = np.float64(zz[i]), np.float64(yy[i]), np.float64(xx[i])
        d, e, f = np.float64(zy[i]), np.float64(zx[i]), np.float64(yx[i])
        q = (a + b + c) * (1 / 3)
        a, b, c = a - q, b - q, c - q
        square = (a * a + b * b + c * c + 2 * (d * d + e * e + f * f)) * (1 / 6)
        p = np.sqrt(square)
        r = 0.5 * (a * (b * c - f * f) - d * (d * c - f * e) + e * (d * f - b * e)) / (square * p + TINY)
        u = max(1 - abs(r), 0.0)
        # sin(acos(1 - u) / 3) / sqrt(u) for u in 0..1, by a polynomial with a relative error of 1e-8.
        tail = 2.043946778940e-04
        tail = tail * u + -3.350012635774e-04
        tail = tail * u + 5.644085091294e-04
        tail = tail * u + 2.568368800435e-04
        tail = tail * u + 1.419319562212e-03
        tail = tail * u + 4.660892266028e-03
        tail = tail * u + 2.182462645550e-02
        tail = tail * u + 4.714045181015e-01
        sine = np.sqrt(u) * tail
        cosine = np.sqrt(1 - sine * sine)
        far, near = 2 * p * cosine, p * cosine
        apart = ROOT_3 * p * sine
        sign = 1.0 if r >= 0 else -1.0
        first, last = (far, -near - apart) if r >= 0 else (near + apart, -far)
        high[i] = q + first
        middle[i] = q + sign * (apart - near)
        low[i] = q + last


@kernel
def structure_eigenvalues(tensor, places, across, out, first):
    """Fill channels 4 to 6 of slices of out (10,d,n), from `first` on, with eigenvalues of the structure tensor (6,m),
    which is smoothed across slices here; places: (slices, 1+2R)."""
    n_slices, size = places.shape[0], out.shape[2]
    lines = np.empty((n_slices, 6, LINE_NUMBERS), np.float32)
    for start in range(0, size, LINE_NUMBERS):
        end = min(start + LINE_NUMBERS, size)
        for k in range(6):
            for s in range(n_slices):
                filter_planes(tensor[k], places[s], start, end - start, across, lines[s, k], None, None)
        for s in range(n_slices):
            z = first + s
            eigenvalues(lines[s], 0, out[4, z, start:end], out[5, z, start:end], out[6, z, start:end])


@kernel
def smooth_products(products, rows, columns, left, along, padded, tensor, slot):
    """Fill this slot of tensor (6,S,h,w) with products (6,H,W), smoothed in the plane.

    rows, columns, left: as `mirrored` takes them, for padded (H2,W2)
    """
    radius = along.shape[1] - 1
    for k in range(6):
        mirrored(products[k], rows, columns, left, padded)
        smooth_window(padded.ravel(), padded.shape[1], radius, radius, along, tensor[k, slot])
