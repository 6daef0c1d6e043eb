"""A training run: groups from the record, an update, an export, a push, and a directory that survives a restart.

DIRECTORY/
    state.json          weight version, which files are current, the batch that made it
    weights/7/          the policy after the update that made version 7, ready for vLLM
    optimizer/7.pt      the optimizer's moments after the same update
    adapter/7/          with LoRA, the adapters alone
    metrics.jsonl       one line a step
    report-name         what the run is called where it is reported to

A step is on disk (weights, moments, then state.json, which names them) before it is in the record and before it is
pushed. Killed before that, it never happened, and the same groups give the same step again; killed after it, the next
run records and pushes what is missing first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from replay.batches import batch_of
from replay.reader import Reader
from replay.records import NewBatch
from replay.store import Store
from replay.writer import Recorder
from trainer.batches import Credited
from trainer.export import export
from trainer.figures import figures
from trainer.grpo import Learner, Settings
from trainer.intake import Intake, Taken
from trainer.metrics import StepMetrics
from trainer.notes import write_note
from trainer.policy import Policy, find_checkpoint, load_policy, text_prompts, token_logprobs
from trainer.push import BF16_TOLERANCE, FP32_TOLERANCE, Pushed, Reload, Way, WeightServer, next_version, push
from trainer.rebuild import digest
from trainer.reporting import Report, nowhere
from trainer.run_files import last_logged, log_step, prune
from trainer.run_state import RunState
from trainer.selection import Selection, batch_record

PROBES = 3
_PROBE_PROMPT_TOKENS = (129, 2048)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One step: what was selected, what the update saw, where the weights are, how the push went (None: not pushed)."""

    version: str
    weights: Path
    selection: Selection
    metrics: StepMetrics
    batch_id: int
    pushed: Pushed | None


@dataclass(slots=True)
class TrainingRun:
    """The run in `directory`: a learner, and how far it has come. `version` counts updates; 0 is the given model."""

    directory: Path
    model: Path
    learner: Learner
    version: int
    weights: Path | None
    unsettled: NewBatch | None = None
    """The batch of the last step, until it is known to be in the record."""
    report: Report = nowhere
    """Told the figures of every step, by the version of its weights."""
    way: Way = field(default_factory=Reload)
    """How weights come into the server: see push.choose."""

    @classmethod
    def open(
        cls, directory: Path, model: str, settings: Settings, *, load: Callable[[Path], Policy] = load_policy
    ) -> Self:
        """Begin a run from `model` in `directory`, or go on with the one that is there; `load` loads its weights.

        Raises FileNotFoundError when the model is missing, ValueError when the run there began from another model.
        """
        state = RunState.read(directory)
        source = find_checkpoint(model)
        if state is None:
            learner = Learner(load(source), settings)
            return cls(directory=directory, model=source, learner=learner, version=0, weights=None)
        if state.model != str(source):
            raise ValueError(
                f"the run in {directory} began from {state.model}, not {source}: name another directory with --out"
            )
        if (state.adapter is None) != (settings.lora is None):
            kind = "all weights" if state.adapter is None else "adapters"
            raise ValueError(f"the run in {directory} trains {kind}: go on like that, or name another directory")
        weights = directory.resolve() / state.weights
        policy = load(weights if state.adapter is None else source)
        policy.source = source  # exports take tokenizer and templates from there; these weights will be pruned
        if settings.lora is not None and state.adapter is not None:
            policy.adapt(settings.lora, directory / state.adapter)
        learner = Learner(policy, settings)
        learner.load_optimizer(directory / state.optimizer)
        return cls(
            directory=directory,
            model=source,
            learner=learner,
            version=state.version,
            weights=weights,
            unsettled=state.batch,
        )

    def settle(self, store: Store, recorder: Recorder) -> None:
        """Record the last step's batch, should it have been lost: its groups must not be trained on twice."""
        last = self.unsettled
        if last is not None:
            batch_id = batch_of(store, str(last.checkpoint), last.created_at)
            if batch_id is None:
                batch_id = recorder.record_batch(last).result()
            if last_logged(self.directory) < self.version:
                self._log(last, batch_id)
        self.unsettled = None

    def catch_up(self, server: WeightServer) -> Pushed | None:
        """Push the last step's weights where `server` serves an older version.

        That push never came through, or the server was started again, and has its first weights and no version.
        """
        served = server.version()
        known = int(served) if served.isdecimal() else 0
        if self.weights is None or (served != "default" and not served.isdecimal()) or known >= self.version:
            return None
        return push(
            server,
            self._pushable(str(self.version)),
            str(self.version),
            prompts=text_prompts(self.learner.policy.tokenizer),
            score=self.score,
            way=self.way,
            tolerance=self._tolerance,
            fallback=self._fallback(server, None),
        )

    def _pushable(self, version: str) -> Path:
        """What our way pushes of a version."""
        return self.directory / ("adapter" if self.way.adapters else "weights") / version

    def _fallback(self, server: WeightServer, before: Path | None) -> Path | None:
        """Where what `server` has now can be read again, so that it can be given back; None where nobody has it.

        `before` are this run's weights before the step, None before its first.
        """
        served = server.version()
        if before is not None and served == before.name:
            return self._pushable(served)
        # Nothing was pushed since it was started, so an adapter is still the one that changes nothing.
        return server.first_adapter() if self.way.adapters and served in ("default", "0") else None

    @property
    def _tolerance(self) -> float:
        return BF16_TOLERANCE if self.learner.bf16 else FP32_TOLERANCE

    def step(
        self,
        reader: Reader,
        recorder: Recorder,
        intake: Intake,
        *,
        server: WeightServer | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> StepReport:
        """Train on what `intake` takes from the record, and push the result to `server`.

        Everything is on disk before the push: if that fails, `trainer push` can bring the weights over later.

        Raises NothingToTrain; push.PushError and push.PushMismatch after the step itself is safe.
        """
        taken = self.take(reader, recorder, intake, server=server)
        say(taken.says)
        metrics = self.learner.step(taken.selection.rows)
        return self.finish(reader, recorder, taken, metrics, server=server, say=say)

    def take(self, reader: Reader, recorder: Recorder, intake: Intake, *, server: WeightServer | None = None) -> Taken:
        """What the next step trains on; nothing is consumed by looking. See :meth:`step`. Raises NothingToTrain."""
        self.settle(reader.store, recorder)
        served = None if server is None else server.version()
        return intake.take(reader, version=self.next_version(served), served=served, before=self.weights)

    def finish(
        self,
        reader: Reader,
        recorder: Recorder,
        taken: Taken,
        metrics: StepMetrics,
        *,
        server: WeightServer | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> StepReport:
        """Keep and push the step that the learner has taken on `taken`. Raises as :meth:`step` does."""
        batch_id = self.keep(reader, recorder, taken, metrics)
        pushed = None if server is None else self.publish(server, taken, say=say)
        prune(self.directory, self.version)
        return StepReport(
            version=taken.version,
            weights=self.directory.resolve() / "weights" / taken.version,
            selection=taken.selection,
            metrics=metrics,
            batch_id=batch_id,
            pushed=pushed,
        )

    def keep(self, reader: Reader, recorder: Recorder, taken: Taken, metrics: StepMetrics) -> int:
        """Make the step that the learner has taken on `taken` durable: files, then the record. The batch's id."""
        weights = export(self.learner.policy, self.directory / "weights" / taken.version, version=taken.version)
        self.weights, self.version = weights, int(taken.version)
        stored = batch_record(
            reader,
            taken.selection,
            choice=taken.intake.choice,
            query={
                **taken.intake.query(),
                "digest": digest(taken.selection.rows),
                "settings": asdict(self.learner.settings),
                "model": str(self.model),
                "trained_from": str(taken.before if taken.before is not None else self.model),
            },
            seed=self.learner.settings.seed,
            weight_version=taken.served or str(int(taken.version) - 1),
            checkpoint=str(weights),
            stats={
                **figures(metrics, taken.selection, current=int(taken.version) - 1),
                "groups_stale": taken.stale,
                "left_out": dict(taken.selection.left_out),
                "weight_versions": taken.selection.weight_versions,
            },
        )
        self._save(weights, stored)
        batch_id = recorder.record_batch(stored).result()
        self._log(stored, batch_id)
        return batch_id

    def publish(
        self,
        server: WeightServer,
        taken: Taken,
        *,
        say: Callable[[str], None] = lambda _: None,
    ) -> Pushed:
        """Push the weights of the step that was kept. Raises push.PushError and push.PushMismatch."""
        if self.weights is None:
            raise ValueError("no step was kept: there are no weights to publish")
        say(f"pushing weights {taken.version} and verifying them")
        return push(
            server,
            self._pushable(taken.version),
            taken.version,
            prompts=probe_prompts(taken.selection.rows),
            score=self.score,
            way=self.way,
            tolerance=self._tolerance,
            fallback=self._fallback(server, taken.before),
        )

    def next_version(self, served: str | None) -> str:
        """The version of the next step's weights, where a server has `served` (None: there is no server)."""
        return next_version("default" if served is None else served, at_least=self.version)

    def fresh(self, served: str | None, intake: Intake) -> list[str] | None:
        """The weight versions whose samples the next step may take; None for any."""
        return intake.fresh(int(self.next_version(served)) - 1)

    def score(self, ids: Sequence[int], start: int) -> list[float]:
        """Logprobs of `ids[start:]` under the policy as it is now."""
        return token_logprobs(self.learner.policy.model, ids, start, autocast=self.learner.bf16)

    def _save(self, weights: Path, batch: NewBatch) -> None:
        moments = self.directory / "optimizer" / f"{self.version}.pt"
        moments.parent.mkdir(parents=True, exist_ok=True)
        self.learner.save_optimizer(moments)
        adapter = self.directory / "adapter" / str(self.version) if self.learner.policy.adapted else None
        if adapter is not None:
            self.learner.policy.model.save_pretrained(str(adapter))
            write_note(adapter, weight_version=str(self.version), tied=self.learner.policy.tied)
        RunState(
            version=self.version,
            model=str(self.model),
            weights=str(weights.relative_to(self.directory.resolve())),
            optimizer=str(moments.relative_to(self.directory)),
            adapter=None if adapter is None else str(adapter.relative_to(self.directory)),
            batch=batch,
        ).write(self.directory)

    def _log(self, batch: NewBatch, batch_id: int) -> None:
        """Report the step that made our version, then write its line: killed in between, it is reported again."""
        stats = batch.stats or {}
        self.report(self.version, {name: value for name, value in stats.items() if isinstance(value, int | float)})
        log_step(self.directory, {"at": batch.created_at, "version": self.version, "batch": batch_id, **stats})


def probe_prompts(rows: Sequence[Credited]) -> list[list[int]]:
    """Prompts to verify a push with: the beginnings of trained rows, real ones that the server has seen.

    Prompts longer than a block of its prefix cache come first (see push.push); very long ones are cut.
    """
    shortest, longest = _PROBE_PROMPT_TOKENS
    prompts: dict[tuple[int, ...], None] = {}
    for item in rows:
        first = int(item.row.mask.argmax())
        prompts[tuple(item.row.ids[: min(first, longest)].tolist())] = None
    return [list(p) for p in sorted(prompts, key=lambda p: (len(p) < shortest, len(p)))[:PROBES]]
