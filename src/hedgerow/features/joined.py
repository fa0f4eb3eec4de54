"""Several kinds of feature of the same image, side by side."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hedgerow.errors import ConfigError
from hedgerow.features.protocol import Arrays, FeatureSet, unfitted
from hedgerow.images.array_checks import Layout
from hedgerow.images.regions import Region


@dataclass(frozen=True)
class Joined(FeatureSet):
    """The features of `members`, one after the other. The mean and std here replace those of the members."""

    kind: ClassVar[str] = "joined"

    n_inputs: int
    members: tuple[FeatureSet, ...]
    mean: np.ndarray
    std: np.ndarray

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        return joint_layout([type(member) for member in self.members])

    @property
    def title(self) -> str:
        return "+".join(member.title for member in self.members)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for member in self.members for name in member.names)

    @property
    def n_features(self) -> int:
        return sum(member.n_features for member in self.members)

    @property
    def halo(self) -> int:
        return max(member.halo for member in self.members)

    @property
    def halo_z(self) -> int:
        return max(member.halo_z for member in self.members)

    @property
    def dimensions(self) -> int:
        return max(member.dimensions for member in self.members)

    def check_here(self) -> None:
        for member in self.members:
            member.check_here()

    def raw_in(self, image: np.ndarray, region: Region) -> np.ndarray:
        return np.concatenate([member.raw_in(image, region) for member in self.members])

    def raw_in_volume(self, volume: np.ndarray, region: Region) -> np.ndarray:
        return np.concatenate([member.raw_in_volume(volume, region) for member in self.members])

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "members": [member.settings() for member in self.members]}

    def arrays(self) -> Arrays:
        own = {f"{k}.{name}": array for k, m in enumerate(self.members) for name, array in m.arrays().items()}
        return {**super().arrays(), **own}

    def validate(self) -> None:
        for member in self.members:
            member.validate()
        super().validate()


def joined(members: list[FeatureSet]) -> Joined:
    """The members side by side, before statistics are computed."""
    for member in members:
        if not can_be_joined(member):
            raise ConfigError(
                f"{member.kind!r} features have their own rules for splits, so they cannot be combined with others; "
                "use them alone."
            )
    return Joined(members[0].n_inputs, tuple(members), **unfitted(sum(member.n_features for member in members)))


def can_be_joined(member: FeatureSet) -> bool:
    """Whether a kind has no rules of its own for pixels outside the image, offsets or statistics."""
    own = ("counted", "with_statistics", "stretch", "reach", "outside")
    is_plain = all(getattr(type(member), name) is getattr(FeatureSet, name) for name in own)
    return is_plain and member.blank is None and member.proposals == "offsets"


def joint_layout(kinds: list[type[FeatureSet]]) -> Layout:
    """Planes if any kind reads the user's own channels, which the other kinds then read, too; else a picture."""
    return "planes" if any(kind.layout == "planes" for kind in kinds) else "picture"
