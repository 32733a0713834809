"""Who may say which message to a broker, and which one opens a connection: a change of either is made here as well."""

from sensorgrid.overlay import messages
from sensorgrid.overlay.messages import ANYONE, BROKERS

FACTS = {
    # name: (who may say it, whether it dials)
    "Alive": (ANYONE, True),
    "Answer": (BROKERS, False),
    "Ask": (ANYONE, False),
    "Derive": (ANYONE, True),
    "Derived": (ANYONE, False),
    "Feed": (ANYONE, False),
    "Find": (BROKERS, True),
    "Holds": (ANYONE, False),
    "Found": (BROKERS, True),
    "Grant": (ANYONE, False),
    "Joined": (BROKERS, True),
    "Leave": (ANYONE, False),
    "Located": (ANYONE, False),
    "Moving": (BROKERS, False),
    "News": (BROKERS, False),
    "Offer": (BROKERS, True),
    "Ping": (BROKERS, True),
    "Pong": (BROKERS, False),
    "Redirect": (ANYONE, False),
    "Refuse": (ANYONE, False),
    "Relinquish": (ANYONE, False),
    "Shifted": (BROKERS, True),
    "Steer": (BROKERS, True),
    "Told": (BROKERS, True),
    "Underived": (ANYONE, False),
    "Want": (ANYONE, True),
}


def test_messages_are_said_and_dial_as_the_table_says() -> None:
    ours = {
        name: (kind.said_by, kind.dials)
        for name, kind in messages.known.items()
        if kind.__module__.startswith("sensorgrid.")  # tests define messages of their own
    }

    assert ours == FACTS
