"""Normalisation over an image by Triton's kernels, against the definition, in value and gradient."""

import pytest

torch = pytest.importorskip("torch")

from hedgerow.kernels.definition import norm as definition


@pytest.fixture
def norm(gpu):
    """The module of the kernels."""
    from hedgerow.kernels.gpu import norm

    return norm


def case(gpu, shape, dtype=torch.float32, is_together=True, seed=0):
    """Planes of any mean and spread, a weight, a bias and a slope."""
    random = torch.Generator().manual_seed(seed)
    size = (1, shape[1], 1, 1)
    planes = torch.randn(shape, generator=random) * 3 + 5 * torch.randn(size, generator=random)
    weight, bias = (torch.randn(shape[1], generator=random) for _ in range(2))
    slope = torch.randn(shape, generator=random)
    order = torch.channels_last if is_together else torch.contiguous_format
    planes, slope = (one.to(gpu, dtype).contiguous(memory_format=order) for one in (planes, slope))
    return planes, weight.to(gpu), bias.to(gpu), slope


def both(image_norm, planes, weight, bias, slope):
    """Its value, and the gradients of all that is given."""
    given = [one.detach().requires_grad_() for one in (planes, weight, bias)]
    found = image_norm(*given)
    return found.detach(), *torch.autograd.grad(found, given, slope)


SHAPES = [(1, 1, 1, 1), (2, 3, 1, 1), (1, 1, 5, 7), (3, 3, 13, 9), (2, 33, 11, 6), (1, 65, 7, 9), (2, 130, 3, 5)]


@pytest.mark.parametrize("is_together", [True, False])
@pytest.mark.parametrize(("block", "programs"), [(4096, 1024), (256, 4), (256, 1024)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_the_definition(norm, gpu, monkeypatch, shape, block, programs, is_together):
    monkeypatch.setattr(norm, "BLOCK", block)
    monkeypatch.setattr(norm, "PROGRAMS", programs)
    given = case(gpu, shape, is_together=is_together)
    results = both(norm.image_norm, *given)
    expected = both(definition.image_norm, *(result.double() for result in given))
    assert results[0].is_contiguous(memory_format=torch.channels_last)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.double(), wanted, atol=2e-4, rtol=2e-4)


def test_in_half_precision_sums_are_not_rounded(norm, gpu):
    """What goes in and comes out has 8 bits, so that is how close it comes."""
    given = case(gpu, (2, 24, 31, 17), torch.bfloat16)
    results = both(norm.image_norm, *given)
    expected = both(definition.image_norm, *(tensor.double() for tensor in given))
    assert [tensor.dtype for tensor in results] == [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32]
    for tensor, wanted in zip(results[:2], expected[:2], strict=True):
        torch.testing.assert_close(tensor.double(), wanted, atol=1e-2, rtol=1e-2)
    for tensor, wanted in zip(results[2:], expected[2:], strict=True):
        torch.testing.assert_close(tensor.double(), wanted, atol=1e-3, rtol=1e-3)


def test_what_is_no_number_stays_none(norm, gpu):
    planes, weight, bias, _ = case(gpu, (2, 3, 4, 5))
    planes[1, 2, 3, 3] = torch.nan
    normalised = norm.image_norm(planes, weight, bias)
    assert normalised[1, 2].isnan().all(), "or a training that fails would not be noticed"
    assert not normalised[0].isnan().any()
    assert not normalised[1, :2].isnan().any()


def test_it_is_the_same_twice(norm, gpu):
    given = case(gpu, (2, 40, 50, 30))
    for one, again in zip(both(norm.image_norm, *given), both(norm.image_norm, *given), strict=True):
        assert torch.equal(one, again)
