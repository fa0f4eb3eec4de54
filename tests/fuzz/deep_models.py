"""Model files with an encoder, and with convolutional levels: as for `models`, of which these take a little longer."""

import os
from dataclasses import replace

import hedgerow as hr
from fuzz import special
from fuzz.models import WORDS, Models
from helpers.deep import SMALL, small_deep
from helpers.deep import pictures as grey_pictures
from helpers.encoded import grown

SIZE = (32, 40)
TRAP = "trap.onnx"  # a pipe, at which whoever opens it hangs
NAMES = (
    *(
        "lite0",
        "mobilesam",
        "timm:resnet18",
        "timm:../x",
        "x.onnx",
        "../x.onnx",
        "//127.0.0.1/x/y.onnx",
        "\\\\127.0.0.1\\x.onnx",
    ),
    *(
        "s1",
        "s2",
        "s3",
        "s5",
        "s7",
        "s99",
        "s0",
        "encoder",
        "layers",
        "stride",
        "scale",
        "changed.",
        "checksum",
        "together",
    ),
)


class DeepModels(Models):
    """Makes and uses model files; see `Models`."""

    name = "deep"

    def models(self, folder):
        """(name, model) of each kind."""
        self.words = (*WORDS, *NAMES, str(folder / TRAP))
        if special.IS_POSSIBLE:
            os.mkfifo(folder / TRAP)
        stack = grown("encoder")[0]
        yield "encoder", stack
        yield "encoder-net", hr.to_convnet(stack)
        yield "deep", small_deep(*grey_pictures(size=SIZE), n_networks=1)
        alone = replace(SMALL, norm="image")
        yield "deep-alone", small_deep(*grey_pictures(size=SIZE), members=("alone",), conv=alone)
