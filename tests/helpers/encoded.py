"""Images, features and networks of forests that read the encoder Lite0, small enough for tests."""

import numpy as np

import hedgerow as hr
from hedgerow.encoders.catalogue import find, last_shapes
from hedgerow.features.registry import fit_features

STAGES = ("s1", "s2", "s3", "s5")  # those that are read unless others are asked for


def planes(size=(61, 83), n_images=2, n_channels=3, seed=0):
    """Images (C,H,W) float32 from 0 to 255, of soft shapes."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(0, 255, (n_images, n_channels, size[0] // 8 + 1, size[1] // 8 + 1))
    return list(np.kron(coarse, np.ones((8, 8)))[:, :, : size[0], : size[1]].astype(np.float32))


def fitted(images, features="encoder", **settings):
    """Features of the encoder, with 6 components unless told."""
    encoder = hr.EncoderConfig(**{"n_components": 6, **settings})
    return fit_features(images, hr.StackConfig(features=features, sigmas=(0.7,), encoder=encoder))[0]


def last(layers=STAGES, seed=None):
    """Tensors of the last stage that is read; with a seed, changed a little at random."""
    stored, result = find("lite0").weights, {}
    rng = np.random.default_rng(seed)
    for name in last_shapes("lite0", layers):
        result[name] = stored[name].clone()
        if seed is not None:
            noise = rng.normal(0, 0.1 * float(stored[name].std()), stored[name].shape)
            result[name] += result[name].new_tensor(noise)
    return result


def arrays(weights):
    return {name: weight.detach().numpy().copy() for name, weight in weights.items()}


def pictures(n_images=3, size=(64, 64)):
    """Small house fronts (H,W,3) uint8 and their labels (H,W)."""
    return hr.synthetic.facades(n_images=n_images, size=size, seed=4)


def grown(features="encoder"):
    """A small stack that reads the encoder, and the images and labels it was grown on."""
    images, labels = pictures()
    config = hr.StackConfig(
        drop_levels=False, n_levels=2, n_trees=2, max_depth=5, features=features, sigmas=(0.7,), held_out="none",
        encoder=hr.EncoderConfig(n_components=8), context=hr.ContextConfig(window=17, n_offsets=3),
    )  # fmt: skip
    return hr.fit_stack(images, labels, config), images, labels
