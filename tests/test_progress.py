"""What a job says of itself: a bar, lines or nothing."""

import pytest

from privjax.progress import Standing, reporter


def shown(mode, capsys):
    with reporter(mode, "audit") as report:
        report.say("20 points.")
        report.show(Standing(20, 5, "points"))
        report.show(Standing(20, 10, "points"))
    return capsys.readouterr().err


def test_a_log_has_a_line_each_time_something_is_done(capsys):
    lines = shown("log", capsys).splitlines()
    assert lines[:2] == ["audit: 20 points.", "audit: 5/20 points"]
    assert lines[2].startswith("audit: 10/20 points")


def test_a_log_is_silent_where_nothing_was_done(capsys):
    with reporter("log", "audit") as report:
        report.show(Standing(20, 0, "points", part=0.1))
        report.show(Standing(20, 0, "points", part=0.2))
    assert capsys.readouterr().err == ""


def test_a_bar_says_how_far_it_is(capsys):
    text = shown("bar", capsys)
    assert "audit" in text
    assert "10/20 points" in text


def test_a_bar_leaves_brackets_alone(capsys):
    with reporter("bar", "sweep") as report:
        report.say("goes on from runs[/1]/[red]")
    assert "runs[/1]/[red]" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["off", None])  # a test is no terminal
def test_nothing(mode, capsys):
    assert shown(mode, capsys) == ""


def test_another_mode_is_refused():
    with pytest.raises(ValueError, match="progress must be"), reporter("loud", "audit"):
        pass
