"""The U-Net: any size, and no further influence than it says."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.deep.convnet import turned, turned_back
from hedgerow.deep.unet import ImageNorm, UNet
from hedgerow.kernels.definition.norm import EPSILON


def network(n_down=2):
    torch.manual_seed(0)
    net = UNet(2, 3, 4, n_down, 8)
    for _ in range(3):  # statistics that are not those of the start
        net(torch.randn(2, 2, 32, 32))
    return net.eval()


@pytest.mark.parametrize("size", [(1, 1), (5, 17), (16, 16), (33, 20)])
def test_any_size_goes_through(size):
    with torch.no_grad():
        assert network()(torch.randn(1, 2, *size)).shape == (1, 3, *size)


@pytest.mark.parametrize("n_down", [1, 2, 3])
def test_nothing_beyond_the_reach_has_any_influence(n_down):
    net = network(n_down)
    side, middle = 4 * net.reach, 2 * net.reach + 3
    planes = torch.randn(1, 2, side, 8 * net.stride)
    planes.requires_grad_()
    net(planes)[0, :, middle, 5].sum().backward()
    rows = torch.nonzero(planes.grad.abs().sum(dim=(0, 1, 3)))[:, 0]
    assert net.reach % net.stride == 0
    assert middle - net.reach <= int(rows.min())
    assert int(rows.max()) <= middle + net.reach
    assert int(rows.max()) - int(rows.min()) > net.reach, "and it is not far too large"


def test_an_image_is_normalised_by_itself():
    torch.manual_seed(0)
    norm = ImageNorm(3).double()
    with torch.no_grad():
        norm.weight += torch.randn(3)
        norm.bias += torch.randn(3)
    planes = torch.randn(2, 3, 5, 7, dtype=torch.float64, requires_grad=True)
    mean, variance = planes.mean((2, 3), keepdim=True), planes.var((2, 3), keepdim=True, correction=0)
    scaled = (planes - mean) / torch.sqrt(variance + EPSILON)
    expected = torch.relu(scaled * norm.weight[:, None, None] + norm.bias[:, None, None])
    torch.testing.assert_close(norm(planes), expected)
    weights = torch.randn_like(planes)
    gradient, expected_gradient = (
        torch.autograd.grad((output * weights).sum(), planes)[0] for output in (norm(planes), expected)
    )
    torch.testing.assert_close(gradient, expected_gradient)
    torch.testing.assert_close(norm(planes[:, :, :1, :1])[0, :, 0, 0], torch.relu(norm.bias))


def test_a_network_that_normalises_each_image_follows_its_contrast():
    torch.manual_seed(0)
    net = UNet(1, 2, 4, 2, 8, "image").eval()
    planes = torch.randn(1, 1, 16, 24)
    with torch.no_grad():
        torch.testing.assert_close(net(planes), net(3 * planes), atol=1e-3, rtol=1e-3)


def test_the_widest_level_is_limited():
    net = UNet(1, 2, 4, 3, 8)
    assert [block[0].out_channels for block in net.down] == [4, 8, 8, 8]


def test_turning_is_undone_and_all_orientations_differ():
    planes = torch.from_numpy(np.arange(30, dtype=np.float32).reshape(1, 1, 5, 6))
    seen = [turned(planes, number) for number in range(8)]
    assert all(torch.equal(turned_back(view, number), planes) for number, view in enumerate(seen))
    assert len({(view.shape, tuple(view.reshape(-1).tolist())) for view in seen}) == 8
