"""A person in front of a depth camera: round cones on a posed skeleton, cast ray by ray.

World axes point to the right of the image, up, and towards the camera. The person's own axes are left, up and forward,
which are the same for somebody who faces the camera. Lengths are in metres until the sensor turns them into
millimetres.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

BODY_PART_NAMES = (
    "head",
    *(f"torso{level}{side}" for level in range(3) for side in "LR"),
    *(f"leg{level}{side}" for level in range(3) for side in "LR"),
    *(f"arm{level}{side}" for level in range(3) for side in "LR"),
    "background",
)
PART_IDS = {name: number for number, name in enumerate(BODY_PART_NAMES)}
BACKGROUND_ID = PART_IDS["background"]
# The torso has two solids; its six parts are distinguished by the point where a ray meets them.
CHEST, HIPS = -1, -2

VERTICAL_FIELD_OF_VIEW = 43.0
# Steps of disparity times depth in mm; depth comes in steps of 2.8 mm at 1 m, like that of the Kinect.
DISPARITY_SCALE = 1e6 / 2.8
PROJECTOR_BASELINE_MM = 75.0
LEFT, UP, AHEAD = np.eye(3)


@dataclass(frozen=True)
class RoundCone:
    """The hull of two spheres, flattened along one axis; part is a class id, CHEST or HIPS.

    start, end: (3,) centres. flat_axis: (3,) unit vector. flatness: the thickness along this axis divided by that
    across it, 1 for a round solid.
    """

    part: int
    start: np.ndarray
    end: np.ndarray
    start_radius: float
    end_radius: float
    flat_axis: np.ndarray
    flatness: float


@dataclass(frozen=True)
class Frame:
    """A joint's position (3,) and its axes (3, 3) in columns: left, up, forward."""

    position: np.ndarray
    axes: np.ndarray

    def at(self, left: float, up: float, forward: float) -> np.ndarray:
        return self.position + self.axes @ (left, up, forward)


@dataclass(frozen=True)
class Person:
    """The solids to render, and the two frames that divide the torso. chest_middle: a height in the chest frame."""

    solids: list[RoundCone]
    hips: Frame
    chest: Frame
    chest_middle: float


def draw_body(rng: np.random.Generator, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw one person: depth (H, W) uint16 in millimetres and labels (H, W) uint8."""
    focal = height / 2 / np.tan(np.deg2rad(VERTICAL_FIELD_OF_VIEW) / 2)
    person = _pose(rng, aside=0.3 * min(1.0, width / height))
    depth, labels = _cast(person, focal, height, width)
    return _sense(rng, depth, focal), labels


def _pose(rng: np.random.Generator, aside: float) -> Person:
    """Draw a build, a place and joint angles. Lengths are those of a person 1.75 m tall, then scaled."""
    tall = rng.uniform(0.88, 1.1)
    stout = tall * rng.uniform(0.88, 1.25)
    camera_tilt = _turn(LEFT, rng.normal(0, 5))
    hips_axes = camera_tilt @ _turn(UP, rng.uniform(-60, 60)) @ _turn(LEFT, rng.normal(4, 8))
    hips_axes = hips_axes @ _turn(AHEAD, rng.normal(0, 6))
    place = np.array([rng.uniform(-aside, aside), rng.uniform(-0.2, 0.05), -rng.uniform(2.0, 3.3)])
    hips = Frame(place, hips_axes)
    bend = _turn(UP, rng.normal(0, 12)) @ _turn(LEFT, rng.normal(6, 10)) @ _turn(AHEAD, rng.normal(0, 8))
    chest = Frame(hips.at(0, 0.14 * tall, 0), hips_axes @ bend)

    solids = _torso(hips, chest, tall, stout) + _head(rng, chest, tall)
    for side, outward in (("L", 1), ("R", -1)):
        solids += _arm(rng, chest, side, outward, tall, stout)
        solids += _leg(rng, hips, side, outward, tall, stout)
    return Person(solids, hips, chest, chest_middle=0.2 * tall)


def _torso(hips: Frame, chest: Frame, tall: float, stout: float) -> list[RoundCone]:
    chest_forward, hips_forward = chest.axes[:, 2], hips.axes[:, 2]
    shoulders = chest.at(-0.15 * tall, 0.315 * tall, 0), chest.at(0.15 * tall, 0.315 * tall, 0)
    sockets = hips.at(-0.065 * tall, -0.02 * tall, 0), hips.at(0.065 * tall, -0.02 * tall, 0)
    ribs = chest.at(0, 0.03 * tall, 0), chest.at(0, 0.23 * tall, 0)
    waist = hips.at(0, 0, 0), hips.at(0, 0.13 * tall, 0)
    return [
        RoundCone(CHEST, *ribs, 0.135 * stout, 0.17 * stout, chest_forward, 0.68),
        RoundCone(CHEST, *shoulders, 0.07 * stout, 0.07 * stout, chest_forward, 0.9),
        RoundCone(HIPS, *waist, 0.16 * stout, 0.135 * stout, hips_forward, 0.72),
        RoundCone(HIPS, *sockets, 0.105 * stout, 0.105 * stout, hips_forward, 0.9),
    ]


def _head(rng: np.random.Generator, chest: Frame, tall: float) -> list[RoundCone]:
    turned = chest.axes @ _turn(UP, rng.normal(0, 20)) @ _turn(LEFT, rng.normal(0, 12))
    neck = Frame(chest.at(0, 0.37 * tall, 0), turned)
    left = turned[:, 0]
    jaw, crown = neck.at(0, 0.12 * tall, 0.035), neck.at(0, 0.19 * tall, 0.005)
    return [
        RoundCone(PART_IDS["head"], neck.position, jaw, 0.055 * tall, 0.05 * tall, left, 1.0),
        RoundCone(PART_IDS["head"], jaw, crown, 0.075 * tall, 0.098 * tall, left, 0.85),
    ]


def _arm(rng: np.random.Generator, chest: Frame, side: str, outward: int, tall: float, stout: float) -> list[RoundCone]:
    """Upper arm, forearm and hand. Gestures: hanging, sideways, raised, reaching forward."""
    lift, swing, flex = [
        (rng.uniform(5, 30), rng.normal(0, 18), rng.uniform(5, 60)),
        (rng.uniform(40, 100), rng.normal(10, 20), rng.uniform(0, 110)),
        (rng.uniform(100, 165), rng.normal(10, 15), rng.uniform(0, 90)),
        (rng.uniform(5, 35), rng.uniform(35, 100), rng.uniform(0, 120)),
    ][rng.choice(4, p=[0.35, 0.25, 0.15, 0.25])]
    shoulder = Frame(chest.at(outward * 0.185 * tall, 0.315 * tall, 0), chest.axes)
    upper = shoulder.axes @ _turn(LEFT, -swing) @ _turn(AHEAD, outward * lift)
    upper = upper @ _turn(UP, -outward * rng.uniform(-20, 70))
    elbow = shoulder.position - upper[:, 1] * 0.28 * tall
    lower = upper @ _turn(LEFT, -flex)
    wrist = elbow - lower[:, 1] * 0.25 * tall
    fingers = wrist - (lower @ _turn(LEFT, rng.normal(0, 20)))[:, 1] * 0.1 * tall
    flat = lower[:, 0]
    return [
        RoundCone(PART_IDS[f"arm0{side}"], shoulder.position, elbow, 0.06 * stout, 0.045 * stout, flat, 1.0),
        RoundCone(PART_IDS[f"arm1{side}"], elbow, wrist, 0.045 * stout, 0.032 * stout, flat, 1.0),
        RoundCone(PART_IDS[f"arm2{side}"], wrist, fingers, 0.043 * tall, 0.04 * tall, flat, 0.7),
    ]


def _leg(rng: np.random.Generator, hips: Frame, side: str, outward: int, tall: float, stout: float) -> list[RoundCone]:
    """Thigh, shin and foot, standing or stepping with a bent knee."""
    swing, flex = [
        (rng.normal(3, 8), rng.uniform(0, 20)),
        (rng.uniform(-20, 75), rng.uniform(15, 100)),
    ][rng.choice(2, p=[0.55, 0.45])]
    socket = hips.at(outward * 0.09 * tall, -0.05 * tall, 0)
    upper = hips.axes @ _turn(AHEAD, outward * rng.uniform(0, 18)) @ _turn(LEFT, -swing)
    upper = upper @ _turn(UP, outward * rng.uniform(-5, 25))
    knee = socket - upper[:, 1] * 0.42 * tall
    lower = upper @ _turn(LEFT, flex)
    ankle = knee - lower[:, 1] * 0.4 * tall
    foot = Frame(ankle, lower @ _turn(LEFT, rng.normal(5, 12)))
    heel, toes = foot.at(0, -0.03 * tall, -0.02 * tall), foot.at(0, -0.05 * tall, 0.15 * tall)
    up = foot.axes[:, 1]
    return [
        RoundCone(PART_IDS[f"leg0{side}"], socket, knee, 0.092 * stout, 0.06 * stout, up, 1.0),
        RoundCone(PART_IDS[f"leg1{side}"], knee, ankle, 0.06 * stout, 0.042 * stout, up, 1.0),
        RoundCone(PART_IDS[f"leg2{side}"], heel, toes, 0.052 * tall, 0.042 * tall, up, 0.85),
    ]


def _turn(axis: np.ndarray, degrees: float) -> np.ndarray:
    """The rotation about a unit axis, (3, 3), by the right-hand rule."""
    angle = np.deg2rad(degrees)
    cross = np.cross(np.eye(3), axis)
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def _cast(person: Person, focal: float, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Depth (H, W) float64 in metres, infinite where no ray hits, and labels (H, W) uint8."""
    depth = np.full((height, width), np.inf)
    labels = np.full((height, width), BACKGROUND_ID, np.uint8)
    up = (height / 2 - 0.5 - np.arange(height)) / focal
    right = (np.arange(width) + 0.5 - width / 2) / focal
    for solid in person.solids:
        window = _window(solid, focal, height, width)
        # One unit of ray length is one unit of depth.
        rays = np.stack([*np.broadcast_arrays(right[window[1]], up[window[0], None], -1.0)], axis=-1)
        hit = _meet(solid, rays)
        nearer = hit < depth[window]
        points = rays[nearer] * hit[nearer][:, None]
        depth[window][nearer] = hit[nearer]
        labels[window][nearer] = _part_at(person, solid.part, points)
    return depth, labels


def _window(solid: RoundCone, focal: float, height: int, width: int) -> tuple[slice, slice]:
    """The image rectangle that holds a solid: rows and columns."""
    rows, columns = [], []
    for centre, radius in ((solid.start, solid.start_radius), (solid.end, solid.end_radius)):
        # Four corners of the box around each sphere bound its rows and columns.
        for away, aside in product((-radius, radius), repeat=2):
            scale = focal / max(-centre[2] + away, 0.1)
            rows.append(height / 2 - (centre[1] + aside) * scale)
            columns.append(width / 2 + (centre[0] + aside) * scale)
    return _span(rows, height), _span(columns, width)


def _span(bounds: list[float], limit: int) -> slice:
    first, last = (int(np.clip(edge, 0, limit)) for edge in (min(bounds), max(bounds) + 1))
    return slice(first, last)


def _meet(solid: RoundCone, rays: np.ndarray) -> np.ndarray:
    """The depth at which each ray from the camera enters the solid, infinite if it does not; rays (..., 3).

    In a space stretched along the flat axis, the solid is a true round cone. At height y along its axis and distance
    rho from it, the side satisfies rho cos(a) = r - y sin(a), where sin(a) is the rate at which the radius shrinks.
    """
    stretch = np.eye(3) + (1 / solid.flatness - 1) * np.outer(solid.flat_axis, solid.flat_axis)
    origin = -stretch @ solid.start
    axis = stretch @ (solid.end - solid.start)
    length = np.linalg.norm(axis)
    axis = axis / length
    directions = rays @ stretch
    shrink = np.clip((solid.start_radius - solid.end_radius) / length, -0.99, 0.99)
    shortening = 1 - shrink**2
    along, squared = directions @ axis, np.sum(directions**2, axis=-1)
    offset, towards = origin @ axis, directions @ origin

    enter = _root(
        shortening * squared - along**2,
        shortening * towards - offset * along + solid.start_radius * shrink * along,
        shortening * (origin @ origin) - offset**2 + 2 * solid.start_radius * shrink * offset
        - solid.start_radius**2,
    )  # fmt: skip
    at = np.where(np.isfinite(enter), offset + along * np.where(np.isfinite(enter), enter, 0), np.inf)
    on_side = (at >= solid.start_radius * shrink) & (at <= length + solid.end_radius * shrink)
    enter = np.where(on_side, enter, np.inf)
    for centre, radius in ((origin, solid.start_radius), (origin - length * axis, solid.end_radius)):
        enter = np.minimum(enter, _root(squared, directions @ centre, centre @ centre - radius**2))
    return enter


def _root(a: np.ndarray, b: np.ndarray, c: float) -> np.ndarray:
    """The solution of a t^2 + 2 b t + c = 0 at which a ray enters the surface; infinite if none lies in front."""
    inside = b * b - a * c
    real = (inside >= 0) & (np.abs(a) > 1e-12)
    t = (-b - np.sqrt(np.where(real, inside, 0))) / np.where(real, a, 1)
    return np.where(real & (t > 0), t, np.inf)


def _part_at(person: Person, part: int, points: np.ndarray) -> np.ndarray | int:
    """The class of surface points (N, 3): that of the solid or, on the torso, that of their height and side."""
    if part >= 0:
        return part
    frame = person.chest if part == CHEST else person.hips
    local = (points - frame.position) @ frame.axes
    level = np.where(local[:, 1] > person.chest_middle, 0, 1) if part == CHEST else 2
    return PART_IDS["torso0L"] + 2 * level + (local[:, 0] < 0)


def _sense(rng: np.random.Generator, depth: np.ndarray, focal: float) -> np.ndarray:
    """(H, W) uint16 in mm: the report of a structured-light sensor for true depth (H, W) in metres."""
    solid = np.isfinite(depth)
    disparity = np.where(solid, DISPARITY_SCALE / np.where(solid, 1000 * depth, 1), 0)
    # Noise and rounding of the disparity make the error in depth grow with its square.
    measured = np.rint(disparity + rng.normal(0, 0.6, depth.shape))
    reported = np.rint(DISPARITY_SCALE / np.maximum(measured, 1))
    seen = solid & ~_shadow(disparity, focal) & ~_lost(rng, disparity)
    return np.where(seen, reported, 0).astype(np.uint16)


def _shadow(disparity: np.ndarray, focal: float) -> np.ndarray:
    """(H, W) bool: surfaces that the projector, which is next to the camera, cannot light."""
    pixels = disparity / DISPARITY_SCALE * PROJECTOR_BASELINE_MM * focal
    hidden = np.zeros(disparity.shape, bool)
    for shift in range(1, 5):
        if shift < disparity.shape[1]:
            hidden[:, :-shift] |= pixels[:, shift:] > pixels[:, :-shift] + shift
    return hidden


def _lost(rng: np.random.Generator, disparity: np.ndarray) -> np.ndarray:
    """(H, W) bool: measurements that are lost at steep edges and in speckles of a few pixels."""
    padded = np.pad(disparity, 1, mode="edge")
    shifted = [padded[1:-1, :-2], padded[1:-1, 2:], padded[:-2, 1:-1], padded[2:, 1:-1]]
    jump = np.max([np.abs(disparity - neighbour) for neighbour in shifted], axis=0)
    chance = rng.uniform(size=disparity.shape)
    seeds = np.pad(rng.uniform(size=disparity.shape) < 0.002, 1)
    speckle = seeds[1:-1, 1:-1] | seeds[:-2, 1:-1] | seeds[1:-1, :-2] | seeds[:-2, :-2]
    return speckle | (chance < 0.4 * (jump > 3)) | (chance < 0.003)
