"""Progress of a job: a bar, lines or nothing."""

import pytest

from privjax.progress import Progress, reporter


def displayed(mode, capsys):
    with reporter(mode, "audit") as report:
        report.say("20 members.")
        report.show(Progress(20, 5, "members"))
        report.show(Progress(20, 10, "members"))
    return capsys.readouterr().err


def test_log_prints_a_line_when_an_item_finishes(capsys):
    lines = displayed("log", capsys).splitlines()
    assert lines[:2] == ["audit: 20 members.", "audit: 5/20 members"]
    assert lines[2].startswith("audit: 10/20 members")


def test_log_is_silent_while_nothing_finishes(capsys):
    with reporter("log", "audit") as report:
        report.show(Progress(20, 0, "members", partial=0.1))
        report.show(Progress(20, 0, "members", partial=0.2))
    assert capsys.readouterr().err == ""


def test_bar_shows_the_count(capsys):
    text = displayed("bar", capsys)
    assert "audit" in text
    assert "10/20 members" in text


def test_bar_prints_brackets_unchanged(capsys):
    with reporter("bar", "sweep") as report:
        report.say("continues from runs[/1]/[red]")
    assert "runs[/1]/[red]" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["off", None])  # stderr of a test is not a terminal
def test_no_output(mode, capsys):
    assert displayed(mode, capsys) == ""


def test_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="progress must be"), reporter("loud", "audit"):
        pass
