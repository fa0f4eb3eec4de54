"""Mistakes that both type checkers must find: one that is not found makes its comment an error. It is never run."""

import numpy as np
from numpy.typing import NDArray

import hedgerow as hr
from hedgerow import jobs


def mistakes(images: list[NDArray[np.uint8]], labels: list[NDArray[np.int64]], net: hr.StackNet) -> None:
    hr.StackConfig(n_tree=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    hr.StackConfig(n_trees="three")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.StackConfig(context=hr.AugmentConfig())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.StackConfig(criterion="misclassification")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.fit(images)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    hr.fit(images, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.fit(images, labels, "better")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.fit(images, labels, unlabelled="none")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.fit_stack(images, labels, hr.RefineConfig())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.fit(images, labels, groups=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.fit_stack(images, labels, progres=None)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    hr.load(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.fit_stack(images, labels).predikt(images[0])  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    hr.save("model.hedge", net)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = hr.evaluate(net, images, labels).mean_dise  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    hr.to_forest(hr.fit_stack(images, labels))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.measure(labels[0], split="thin")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.set_threads("two")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.fit_forest(images, labels)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    jobs.TrainRequest("photos/", "painted/")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    jobs.train("photos/")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
