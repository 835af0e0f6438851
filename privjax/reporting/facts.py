"""What was released and what was run, in words."""

from collections.abc import Mapping, Sequence
from typing import Any


def what_was_released(content: dict[str, Any]) -> str:
    """One or two sentences: what leaves the device, what it is to keep and to hide."""
    data, size = content["results"]["data"], content["size"] or {}
    width = (size.get("output") or {}).get("width")
    shape = " x ".join(str(n) for n in data.get("shape") or [data.get("features", "?")])
    released = "a representation z" if width is None else f"z of {count(width, 'number')}"
    kept = f"{content['utility']['name']}{_classes(data.get('y_names'))}"
    hidden = ", ".join(a["label"] for a in content["attributes"]) or ", ".join(data.get("private") or ["s"])
    hidden += _classes(data.get("s_names")) if len(content["attributes"]) <= 1 else ""
    return (
        f"Each row x ({shape}) leaves the device as {released}, which is to keep {kept} and to hide {hidden}."
    )


def _classes(names: Sequence[str] | None) -> str:
    if not names:
        return ""
    return f" ({', '.join(map(str, names))})" if len(names) <= 4 else f" ({len(names)} classes)"


def count(number: int, noun: str) -> str:
    """So many of them."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def size_words(content: dict[str, Any]) -> str:
    """What an encoder costs on the device."""
    size = content["size"]
    if size is None:
        return "The size of this encoder is not known: its networks are your own, or its checkpoint is gone."
    return (
        f"{count(size['parameters'], 'parameter')}, {_bytes(size['bytes'])}, "
        f"{count(size['multiply_adds'], 'multiply-add')} a row; scaling included, of the private half alone."
    )


def _bytes(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"


def run_facts(content: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values of all that the numbers depend on."""
    results, audits = content["results"], content["audits"]
    data, config = results["data"], results["config"]
    schedule = (config.get("objective") or {}).get("schedule") or {}
    listed = [
        ("Data set", data["name"]),
        ("Hash of the data", data.get("content_hash")),
        (
            "Hash of each split",
            [f"seed {seed}: {split}" for seed, split in (data.get("splits") or {}).items()],
        ),
        ("Scaling", data.get("scale")),
        ("Objective", content["objective"]),
        ("Settings of the objective", (config.get("objective") or {}).get("settings")),
        ("Schedule", schedule),
        ("Networks", config.get("networks")),
        ("Privacy weights", [weight["label"] for weight in content["weights"]]),
        ("Seeds", config.get("seeds")),
        ("Rates", config.get("rates")),
        ("Batch size", config.get("batch_size")),
        ("Epochs at most", config.get("num_epochs") or schedule.get("max_epochs")),
        ("Backend", f"{results.get('backend')}, {count(results.get('devices') or 1, 'device')}"),
        ("Seconds of the last sweep call", results.get("seconds")),
        ("Seconds of all audits", audits["seconds"] or None),
        ("Seeds of the audits", audits["seeds"]),
        ("Versions", results.get("versions")),
    ]
    return [(name, words(value)) for name, value in listed if value not in (None, {}, [], "")]


def words(value: Any) -> str:
    """Settings in a line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {words(entry)}" for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(words(entry) for entry in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
