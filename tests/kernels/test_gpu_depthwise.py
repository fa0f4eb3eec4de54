"""Depthwise convolution by Triton's kernels, against the definition, in value and gradient."""

import pytest

torch = pytest.importorskip("torch")

from hedgerow.kernels.definition import depthwise as definition


@pytest.fixture
def kernels(gpu):
    """The module of the kernels."""
    from hedgerow.kernels.gpu import depthwise

    return depthwise


def case(gpu, shape, kernel, stride, dtype=torch.float32, is_together=True):
    """Planes, a weight, a bias and a slope."""
    random = torch.Generator().manual_seed(0)
    planes = torch.randn(shape, generator=random)
    weight, bias = (torch.randn(size, generator=random) for size in ((shape[1], 1, kernel, kernel), (shape[1],)))
    slope = torch.randn((*shape[:2], *(side // stride for side in shape[2:])), generator=random)
    order = torch.channels_last if is_together else torch.contiguous_format
    planes, slope = (one.to(gpu, dtype).contiguous(memory_format=order) for one in (planes, slope))
    return planes, weight.to(gpu), bias.to(gpu), slope


def both(depthwise, planes, weight, bias, slope, stride):
    """Its value, and the gradients of all that is given."""
    given = [one.detach().requires_grad_() for one in (planes, weight, bias)]
    found = depthwise(*given, stride)
    return found.detach(), *torch.autograd.grad(found, given, slope)


SHAPES = [(1, 1, 2, 2), (2, 3, 6, 4), (1, 33, 10, 14), (3, 40, 4, 18)]


@pytest.mark.parametrize("programs", [1, 1024])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2), (1, 1)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_the_definition(kernels, gpu, monkeypatch, shape, kernel, stride, programs):
    monkeypatch.setattr(kernels, "PROGRAMS", programs)
    given = case(gpu, shape, kernel, stride, is_together=programs > 1)
    found = both(kernels.depthwise, *given, stride)
    expected = both(definition.depthwise, *(one.double() for one in given), stride)
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    for one, wanted in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), wanted, atol=1e-4, rtol=1e-4)


def test_odd_sides(kernels, gpu):
    given = case(gpu, (2, 5, 7, 11), 5, 1)
    for one, wanted in zip(
        both(kernels.depthwise, *given, 1), both(definition.depthwise, *(one.double() for one in given), 1), strict=True
    ):
        torch.testing.assert_close(one.double(), wanted, atol=1e-4, rtol=1e-4)


def test_in_half_precision_sums_are_not_rounded(kernels, gpu):
    """What goes in and comes out has 8 bits, so that is how close it comes."""
    given = case(gpu, (2, 24, 30, 16), 5, 2, torch.bfloat16)
    found = both(kernels.depthwise, *given, 2)
    expected = both(definition.depthwise, *(one.double() for one in given), 2)
    assert [one.dtype for one in found] == [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32]
    for one, wanted in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(one.double(), wanted, atol=5e-2, rtol=1e-2)
    for one, wanted in zip(found[2:], expected[2:], strict=True):
        torch.testing.assert_close(one.double(), wanted, atol=1e-3, rtol=1e-3)


def test_only_what_is_asked_for_is_computed(kernels, gpu, monkeypatch):
    """Weights that are not trained need no sums over all pixels, and an image no gradient."""
    planes, weight, bias, slope = case(gpu, (1, 4, 6, 6), 3, 1)
    weight.requires_grad_()
    (alone,) = torch.autograd.grad(kernels.depthwise(planes, weight, bias, 1), weight, slope)
    torch.testing.assert_close(alone, both(kernels.depthwise, planes, weight, bias, slope, 1)[2])
    monkeypatch.setattr(kernels._Work, "to_weights", lambda *_: pytest.fail("nobody asked"))
    planes = planes.requires_grad_()
    (found,) = torch.autograd.grad(kernels.depthwise(planes, weight.detach(), bias, 1), planes, slope)
    assert found.shape == planes.shape
