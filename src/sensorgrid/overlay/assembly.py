"""Which mechanisms a broker has, and what each of them is handed: the boards that it writes, faces of the others."""

from collections.abc import Callable
from typing import TypeAlias

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.boards import (
    Boards,
    Distances,
    Hearsay,
    HeldRoster,
    Lookup,
    Provided,
    RegionsBoard,
    Requests,
)
from sensorgrid.overlay.derived import Formula
from sensorgrid.overlay.kernel import BrokerKernel, Inbox, Notebook
from sensorgrid.overlay.mechanism import Mechanism
from sensorgrid.overlay.mechanisms.calculation import Calculation
from sensorgrid.overlay.mechanisms.liveness import Liveness
from sensorgrid.overlay.mechanisms.membership import Membership
from sensorgrid.overlay.mechanisms.neighbourhood import Neighbourhood
from sensorgrid.overlay.mechanisms.news import NewsExchange
from sensorgrid.overlay.mechanisms.relaying import Relaying
from sensorgrid.overlay.mechanisms.replication import Replication
from sensorgrid.overlay.mechanisms.routing import Routing
from sensorgrid.overlay.mechanisms.streams import Streams
from sensorgrid.overlay.mechanisms.succession import Succession
from sensorgrid.overlay.mechanisms.trees import Trees
from sensorgrid.overlay.nodes import StreamNodes
from sensorgrid.overlay.outlets import Outlets, Supply
from sensorgrid.overlay.policies.interface import Policy
from sensorgrid.overlay.policies.relays import DIRECT, TREE, Relays
from sensorgrid.overlay.ways import ByPrefix, OverTheMap

Plug: TypeAlias = Callable[[BrokerKernel, Boards], Mechanism]
"""makes a mechanism that needs no more than to read"""


def assemble(
    kernel: BrokerKernel,
    policy: Policy,
    relays: Relays | None,
    others: tuple[Plug, ...] = (),
    formulas: Callable[[str], Formula] | None = None,
) -> tuple[Boards, tuple[Mechanism, ...]]:
    """The boards of a broker, to read, and its mechanisms in the order in which they are told of events and settle."""
    strategy = DIRECT if relays is None else relays.strategy
    lookups, located = Inbox[Lookup](), Inbox[Provided]()
    changed = Notebook[Supply]() if strategy not in (DIRECT, TREE) else None
    rerouted = Notebook[tuple[int, int]]() if strategy == TREE else None
    shifts = Notebook[tuple[PeerId, PeerId]]() if strategy == TREE else None

    held, regions, distances, requests = HeldRoster(), RegionsBoard(), Distances(kernel.me), Requests()
    settings = kernel.settings
    outlets = Outlets(settings.budget, kernel.grid, settings.depth, changed, rerouted)
    hearsay = Hearsay(kernel.me, outlets)
    streams = Streams(kernel, outlets, requests, hearsay, held, lookups, located)
    nodes = StreamNodes()
    boards = Boards(held, regions, distances, hearsay, outlets, requests, streams.intake, nodes)
    service = streams.service

    news = NewsExchange(kernel, boards, hearsay, policy.gossips, policy.forwards)
    liveness = Liveness(kernel, boards)
    trees: Trees | None = None
    relaying: list[Mechanism] = []
    if relays is not None and strategy != DIRECT:
        relaying.append(Neighbourhood(kernel, boards, distances, shifts, relays.k, relays.measure_s))
        if rerouted is not None and shifts is not None:
            trees = Trees(kernel, boards, service, rerouted, shifts, relays)
            relaying.append(trees)
        elif changed is not None:
            relaying.append(Relaying(kernel, boards, service, changed, relays))
    way = ByPrefix(kernel) if settings.by_prefix else OverTheMap(kernel, regions)
    routing = Routing(
        kernel, boards, regions, lookups, located, trees, way, policy.forwards, asks_owners=relays is not None
    )
    replication = Replication(kernel, boards, service, news, trees, policy)
    calculation = [] if formulas is None else [Calculation(kernel, boards, nodes, formulas)]
    plugged = [plug(kernel, boards) for plug in others]
    membership = Membership(kernel, held, regions)
    succession = [] if settings.beat_s is None else [Succession(kernel, boards, settings.beat_s)]
    return boards, (
        streams,
        routing,
        replication,
        news,
        liveness,
        *relaying,
        membership,
        *succession,
        *calculation,
        *plugged,
    )
