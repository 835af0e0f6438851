"""The audit of a sweep: resumable, through joblib, the same numbers on any number of workers.

Reports are in `audit/` of the workdir, one file for a member, its training and the attackers. A file is
written once, by the process that calls `audit_sweep`; the files of the sweep are only read.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, SupportsIndex

import cloudpickle

from privjax import datasets, sweeping
from privjax.auditing.attackers import Attackers, select_attackers
from privjax.auditing.audits import Job, audit_release, check_seed, plan_jobs, quiet_attackers
from privjax.auditing.inputs import PARTS, Release, make_release
from privjax.auditing.report import AuditReport
from privjax.files import write_json
from privjax.networks import Networks
from privjax.progress import Progress, reporter
from privjax.sweeping.members import Loader, make_loader

_VERSION = 5  # of the numbers: reports of another version are not reused


def audit_sweep(
    workdir: str | os.PathLike[str],
    data: datasets.Dataset | str | Loader | None = None,
    *,
    members: Iterable[SupportsIndex] | None = None,
    attackers: Attackers = "all",
    network_widths: Sequence[int] | None = None,
    networks: Networks | None = None,
    seed: int = 0,
    n_jobs: int | None = -1,
    progress: str | None = None,
) -> dict[int, AuditReport]:
    """Audit the release of every member of a sweep.

    A report is written to `audit/` in the workdir as soon as it is finished, so the same call resumes an
    interrupted audit. Reports of other attackers stay beside it, and are reused when those are asked for.

    Members run through joblib, in threads unless `joblib.parallel_config` chooses another backend, such as
    a cluster. Processes train the attacker "network" as well, so each process needs its own JAX device.

    Args:
      workdir: Folder of the sweep.
      data: The data of the sweep: a data set, a name, or a function of the seed. Its hash must be that of the
        sweep. If None, it is loaded as the sweep loaded it.
      members: Numbers of members; all when None.
      attackers: As for `audit`.
      network_widths: Hidden widths of the attacker "network"; those of the discriminator when None.
      networks: The networks of the sweep, if they are your own.
      seed: Seed of the audit.
      n_jobs: Members at a time, as in joblib. An RBF SVM on n rows takes about 16 n^2 bytes.
      progress: "bar", "log", "off", or None for a bar on a terminal and nothing elsewhere.

    Returns:
      The reports by member.

    Example:
      >>> import tempfile, privjax
      >>> with tempfile.TemporaryDirectory() as workdir:
      ...     _ = privjax.sweep("digits", privacy_weights=[0.0], num_epochs=1, workdir=workdir)
      ...     reports = audit_sweep(workdir, attackers="quadratic")
      >>> 0.0 < reports[0].leakage <= 1.0
      True
    """
    from joblib import Parallel, delayed

    folder, seed = Path(workdir).expanduser(), check_seed(seed)
    run = sweeping.load_results(folder)
    chosen = list(run.members) if members is None else [run.find(member) for member in members]
    if network_widths is None:
        network_widths = run.config.networks.get("discriminator_widths")
    fingerprint = _fingerprint(attackers, network_widths, seed)
    paths = {m.member: folder / "audit" / f"{m.member:04d}-{fingerprint}.json" for m in chosen}
    reports = {member.member: _read(paths[member.member], member) for member in chosen}
    left = [member for member in chosen if reports[member.member] is None]
    load = _make_loader(data, run)

    def tasks() -> Iterator[Any]:
        for member in left:
            release = _release(folder, member, load(member), networks)
            yield delayed(_audit_member)(member, release, plan_jobs(release, attackers, network_widths), seed)

    with quiet_attackers(), reporter(progress, "audit") as report_progress:
        report_progress.show(Progress(len(chosen), len(chosen) - len(left), "members"))
        finished: Any = Parallel(
            n_jobs=n_jobs, prefer="threads", return_as="generator_unordered", pre_dispatch="2*n_jobs"
        )(tasks())
        for done, (member, report) in enumerate(finished, len(chosen) - len(left) + 1):
            content = {
                "member": member.member,
                "training": _training_hash(member),
                "report": report.to_dict(),
            }
            write_json(paths[member.member], content)
            reports[member.member] = report
            report_progress.show(Progress(len(chosen), done, f"members, last {member.member}"))
    return {number: report for number, report in reports.items() if report is not None}


def load_reports(workdir: str | os.PathLike[str]) -> dict[int, AuditReport]:
    """Load the audit reports of a sweep, all by the same attackers.

    Of several sets of attackers, the reports are those of the set that audited most members; then of the
    largest set; then of the latest. Reports on an earlier training of a member are left out.

    Args:
      workdir: Folder of the sweep.

    Returns:
      The reports by member; empty for a sweep that is not audited.

    Example:
      >>> import tempfile, privjax
      >>> with tempfile.TemporaryDirectory() as workdir:
      ...     _ = privjax.sweep("digits", privacy_weights=[0.0], num_epochs=1, workdir=workdir)
      ...     reports = audit_sweep(workdir, attackers="quadratic")
      ...     load_reports(workdir) == reports
      True
    """
    folder = Path(workdir).expanduser()
    audited: dict[str, dict[int, AuditReport]] = {}
    latest: dict[str, float] = {}
    for member in sweeping.load_results(folder).members:
        for path in (folder / "audit").glob(f"{member.member:04d}-*.json"):
            report, fingerprint = _read(path, member), path.stem.partition("-")[2]
            if report is not None:
                audited.setdefault(fingerprint, {})[member.member] = report
                latest[fingerprint] = max(latest.get(fingerprint, 0.0), path.stat().st_mtime)

    def rank(fingerprint: str) -> tuple[int, int, float]:
        reports = audited[fingerprint].values()
        attacks = max(len(a.attacks) for report in reports for a in report.attributes.values())
        return len(reports), attacks, latest[fingerprint]

    return audited[max(audited, key=rank)] if audited else {}


def _fingerprint(attackers: Attackers, widths: Sequence[int] | None, seed: int) -> str:
    """Return a hash of everything that the numbers of the attackers depend on.

    The printed form of a user's estimator can leave out parameters, so its pickle is hashed, with the code of
    functions in it. An estimator that cannot be pickled gets a random hash: its reports are never reused.
    """
    parts: list[int | str] = [_VERSION, seed]
    for discrete in (True, False):
        for attacker in select_attackers(attackers, discrete=discrete, network_widths=widths):
            parts.append(repr({**attacker._asdict(), "fit": None}))
            if attacker.group(discrete=discrete) == "user":
                try:
                    parts.append(hashlib.sha256(cloudpickle.dumps(attacker.fit)).hexdigest())
                except Exception:  # pickling runs the estimator's own code
                    parts.append(str(uuid.uuid4()))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _audit_member(
    member: sweeping.MemberRecord, release: Release, jobs: Sequence[Job], seed: int
) -> tuple[sweeping.MemberRecord, AuditReport]:
    return member, audit_release(release, jobs, seed=seed)


def _release(
    folder: Path, member: sweeping.MemberRecord, data: datasets.Dataset, networks: Networks | None
) -> Release:
    encoder = sweeping.load_encoder(folder, member.member, networks=networks)
    parts = {part: data.part(part) for part in PARTS if len(getattr(data.split, part))}
    return make_release(
        {part: encoder(rows.x) for part, rows in parts.items()},
        {part: rows.s for part, rows in parts.items()},
        {part: rows.y for part, rows in parts.items()},
    )


def _make_loader(
    data: datasets.Dataset | str | Loader | None, run: sweeping.SweepRun
) -> Callable[[sweeping.MemberRecord], datasets.Dataset]:
    """Return a function that loads the data of a member, and checks its hash."""
    spec = run.data.load_spec
    if data is not None:
        load_seed = make_loader(data)
    elif spec is not None:
        load_seed = make_loader(lambda seed: datasets.reload(spec, seed=seed))
    else:
        raise ValueError(f"data must be given: {run.data.name!r} was made of arrays, not loaded.")

    def load(member: sweeping.MemberRecord) -> datasets.Dataset:
        seed = member.seed
        if spec is not None and member.content_hash == run.data.content_hash:
            seed = spec.seed  # a sweep on one data set has the same data for every seed
        found = load_seed(seed)
        if found.content_hash != member.content_hash:
            raise ValueError(
                f"data is not what member {member.member} was trained on (its hash differs): pass the same "
                "data set, or the function of the seed that the sweep was given."
            )
        return found

    return load


def _training_hash(member: sweeping.MemberRecord) -> str:
    return hashlib.sha256(json.dumps(member.to_dict(), sort_keys=True).encode()).hexdigest()


def _read(path: Path, member: sweeping.MemberRecord) -> AuditReport | None:
    """Read a report; None if it is missing, damaged, or of another training of the member."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["training"] == _training_hash(member):
            return AuditReport.from_dict(content["report"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None
