"""What a training step takes from the record: complete groups that no step has used, fresh enough, up to a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from replay.reader import Reader
from trainer.advantages import NothingToTrain
from trainer.selection import Choice, Selection, explain_nothing, select, up_to


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Groups of at least `min_size` sessions, at most `max_groups` a step (None: all that are there).

    `max_lag` leaves out groups sampled under weights more than that many versions old (None: any). `choice` says how
    they become rows.
    """

    choice: Choice = field(default_factory=Choice)
    min_size: int = 2
    max_groups: int | None = None
    max_lag: int | None = None

    def fresh(self, current: int) -> list[str] | None:
        """The weight versions whose samples may be taken, where the policy is version `current`; None for any."""
        if self.max_lag is None:
            return None
        fresh = [str(version) for version in range(max(0, current - self.max_lag), current + 1)]
        return [*fresh, "default"] if "0" in fresh else fresh

    def take(self, reader: Reader, *, version: str, served: str | None, before: Path | None) -> Taken:
        """What the step that makes `version` trains on; nothing is consumed by looking. Raises NothingToTrain."""
        found = reader.groups(min_size=self.min_size, weight_versions=self.fresh(int(version) - 1))
        stale = 0 if self.max_lag is None else len(reader.groups(min_size=self.min_size)) - len(found)
        selection = select(reader, up_to(found, self.max_groups), self.choice)
        if not selection.rows:
            raise NothingToTrain(explain_nothing(reader, selection, self.min_size))
        return Taken(version=version, served=served, selection=selection, intake=self, stale=stale, before=before)

    def query(self) -> Mapping[str, Any]:
        """As a batch of the record has it, beside the choice."""
        return {name: value for name, value in asdict(self).items() if name != "choice"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a step trains on. Its weights will have the version `version`; `before` are those it begins from.

    `served` is the version that the server has (None: no server); `stale` counts the groups that were left out because
    they are older than the intake allows.
    """

    version: str
    served: str | None
    selection: Selection
    intake: Intake
    stale: int
    before: Path | None

    @property
    def says(self) -> str:
        """This in words."""
        tokens = sum(item.row.trained for item in self.selection.rows)
        too_old = f"; {self.stale} groups are too old for it" if self.stale else ""
        return (
            f"training on {tokens:,} tokens of {len(self.selection.rows)} sequences from "
            f"{self.selection.credit.groups_used} groups{too_old}"
        )
