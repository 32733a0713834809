"""What an operator may choose about a broker; validated once, here."""

from dataclasses import dataclass, fields

from sensorgrid.model.errors import SensorGridError

SILENCES = 3
"""keepalive intervals without a word after which a connection counts as broken"""


class BrokerSettingsError(SensorGridError, ValueError):
    """Settings that cannot work."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds, ticks as counts, bandwidth in points per period (2^t-bits ticks)."""

    budget: int
    """outgoing bandwidth"""
    depth: int = 20
    """longest cell, in digits, that is replicated or asked for"""
    cells_max: int = 1 << 20
    """cells that a client cuts a query into, if its area has not more regions than that"""
    ring_ticks: int = 64
    """recent ticks that are kept for receivers that resume"""
    lateness_ticks: int = 8
    """how far back a tick may be revised; less than the ring"""
    slack_ticks: int = 4
    """a relay starts so many ticks before the first that is wanted, for receivers that lag"""
    patience_s: float = 3.0
    """how long an answer may take"""
    path_patience_s: float = 10.0
    """how long a stream may be without a known path"""
    wait_s: float = 2.0
    """how long a request may wait for room; less than `patience_s`, so that it is refused and not given up"""
    reservation_s: float = 10.0
    """how long budget stays reserved for receivers that were redirected here"""
    age_min_s: float = 10.0
    """how old a relay with one receiver must be before it hands it back"""
    backoff_s: float = 1.0
    """first pause after every provider has failed; doubles"""
    backoff_max_s: float = 60.0
    """longest pause"""
    alive_s: float | None = 5.0
    """how often a silent connection says that it works; three times this without a word breaks it; None: never"""
    beat_s: float | None = None
    """how often brokers of an open network prove to those beside them that they live; None: its roster is a file"""
    news_s: float = 1.0
    """how often free budgets are told, if they changed"""
    news_change: float = 0.02
    """by at least this share of the budget"""
    idle_s: float = 30.0
    """how long a connection without streams stays open"""
    waiting_max: int = 10_000
    """requests that may wait for room"""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("slack_ticks", "news_change", "age_min_s") else 1e-9
            if value is not None and not value >= least:
                raise BrokerSettingsError(f"{field.name}: found {value}, expected a positive number")
        if self.ring_ticks <= self.lateness_ticks + self.slack_ticks:
            raise BrokerSettingsError(
                f"ring_ticks: found {self.ring_ticks}, expected more than lateness_ticks + slack_ticks ="
                f" {self.lateness_ticks + self.slack_ticks}"
            )
