"""The page in a real Chromium, with every road to a network closed."""

import os
import shutil

import pytest
import synthetic_results as made

from privjax.reporting import report

EVIL = '</script><script>alert(1)</script><img src=x onerror=alert(2)> & "q" <b>中😀'
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    expect = sync_playwright = None
if sync_playwright is None or CHROMIUM is None:
    missing = "playwright is not installed" if sync_playwright is None else "there is no chromium here"
    if os.environ.get("CI"):
        pytest.fail(f"{missing}: the page must be looked at here.", pytrace=False)
    pytest.skip(f"{missing}: the page is not looked at.", allow_module_level=True)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """Three weights, two seeds, two private variables; the second one and the attackers have evil names."""
    members = []
    for point, (seed, weight) in enumerate((s, w) for s in (0, 1) for w in (0.0, 2.0, 8.0)):
        leakage = 0.8 - 0.08 * weight + 0.02 * seed
        found = {
            "user": made.attribute(leakage, strongest=leakage + 0.03),
            EVIL: made.attribute(0.5 - 0.05 * weight, kind="continuous"),
        }
        found[EVIL]["attackers"][EVIL] = found[EVIL]["attackers"].pop("quadratic")
        members.append(made.member(point, weight, seed, utility=0.95 - 0.03 * weight, audit=found))
    members.append(
        made.member(6, 9.0, 0, utility=None, status="diverged", effective_rank=None, live_units=None)
    )
    folder = made.write(tmp_path_factory.mktemp("audited") / EVIL[2:8], members, data={"name": EVIL})
    return report(folder)


@pytest.fixture
def open_page(browser):
    """Opens a page and, at the end, makes sure that it neither complained nor asked for anything."""
    contexts, complaints, asked = [], [], []

    def open_(path, address="", **settings):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        contexts.append(context)
        context.set_default_timeout(20_000)
        context.route(lambda url: not url.startswith("file:"), lambda route: route.abort())
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri() + address)
        page.wait_for_selector("#training svg.main-svg")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def cells(page):
    """The audit table as it is read: attacker and main score."""
    rows = page.locator("#audit tbody tr")
    return {
        row.locator("th").inner_text().split("\n")[0]: row.locator("td").nth(1).inner_text().split("\n")[0]
        for row in rows.all()
    }


def test_it_opens_at_the_choice_and_the_slider_picks_another(open_page, audited):
    page = open_page(audited)
    # The largest utility minus leakage is at weight 8; of its seeds 0 leaks less.
    assert page.locator("#command").text_content().endswith("--point 2 --to encoder.onnx")
    assert cells(page)["quadratic"] == "0.190"
    assert page.locator("#chosen").inner_text().startswith("Chosen on validation rows")
    page.locator("#weight").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#command").text_content().endswith("--point 1 --to encoder.onnx")
    assert cells(page) == {
        "quadratic": "0.670",
        "random_forest": "0.640",
        "linear_svm": "0.590",
        "network": "none",
        "activity alone": "0.200",
        "the largest class": "0.120",
    }
    assert "failed: ValueError: it <b>broke</b>" in page.locator("#audit").inner_text()
    assert page.locator("#weight").get_attribute("aria-valuetext") == "weight 2"
    assert "Point 1: weight 2, seed 0" in page.locator("#selection").inner_text()
    assert page.locator("#selection").get_attribute("aria-live") == "polite"
    page.locator("#seed").select_option(label="1")
    assert cells(page)["quadratic"] == "0.690"
    assert page.locator("tr.now th").first.inner_text() == "4"
    page.locator("#chosen a").click()
    expect(page.locator("#audit")).to_contain_text("0.190")
    assert cells(page)["quadratic"] == "0.190"


def test_a_click_on_the_curve_picks(open_page, audited):
    page = open_page(audited)
    place = """(div) => {
      const { xaxis, yaxis } = div._fullLayout, box = div.getBoundingClientRect();
      const { x, y } = div.data.find((trace) => trace.error_x);
      return [box.left + xaxis._offset + xaxis.d2p(x[0]), box.top + yaxis._offset + yaxis.d2p(y[0])];
    }"""
    x, y = page.locator("#curve").evaluate(place)
    page.mouse.move(x, y)
    page.wait_for_selector(".hovertext")
    told = page.locator("#curve .hoverlayer").text_content()
    assert "weight 0 (2 seeds)" in told
    assert "utility 0.950 [0.950, 0.950]" in told
    page.mouse.click(x, y)
    expect(page.locator("#command")).to_contain_text("--point 0 ")
    assert cells(page)["quadratic"] == "0.830"


def test_another_variable_a_bad_point_and_a_link(open_page, audited):
    page = open_page(audited, "#point-6")
    assert "not audited" in page.locator("#audit").inner_text()
    assert page.locator("#summary dd").all_inner_texts() == ["none", "unknown"]
    page.locator("#attribute").select_option(index=1)
    page.locator('a[href="#point-1"]').first.click()
    expect(page.locator("#selection")).to_contain_text("Point 1:")  # the page hears of its address later
    assert cells(page)[EVIL] == "0.400"
    assert (
        page.locator("#curve .xtitle").text_content().startswith("what attackers learn of </script><script>")
    )
    assert page.locator("h1").inner_text() == EVIL
    assert page.locator("img").count() == 0
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#copy").click()
    expect(page.locator("#copy")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("#command").text_content()


def test_dark_follows_and_print_shows_all(open_page, audited):
    page = open_page(audited)
    chart = page.locator("#curve svg").first
    tick = page.locator("#curve .xtick text").first

    def ground():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    def drawn(colour, width):
        """Waits, as the page hears of its media and draws its charts anew when it finds the time."""
        expect(tick).to_have_css("fill", colour, timeout=20_000)
        expect(chart).to_have_js_property("clientWidth", width, timeout=20_000)

    light, light_ground = tick.evaluate("(tick) => getComputedStyle(tick).fill"), ground()
    width = chart.evaluate("(svg) => svg.clientWidth")
    page.emulate_media(color_scheme="dark")
    expect(tick).not_to_have_css("fill", light, timeout=20_000)
    assert ground() != light_ground
    page.emulate_media(media="print", color_scheme="dark")
    drawn(light, 660)
    assert not page.locator("#weight").is_visible()
    shown = page.locator("tr[data-point]").all()
    assert len(shown) == 14
    box = page.locator(".all-points").bounding_box()
    last = shown[-1].bounding_box()
    assert last["y"] + last["height"] <= box["y"] + box["height"] + 1
    for place in ("pre", "#audit table", "#numbers", "#command", "#curve svg", ".promises"):
        assert page.locator(place).first.is_visible()
    page.emulate_media(media="screen", color_scheme="light")
    drawn(light, width)
    assert ground() == light_ground
    assert not page.locator("pre").is_visible()


def test_a_phone_and_a_sweep_without_audits(open_page, audited, tmp_path):
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    bare = made.write(tmp_path / "run", [made.member(i, float(i), 0) for i in range(3)], data={"name": EVIL})
    bare_page = report(bare)
    for path in (audited, bare_page):
        page = open_page(path, **phone)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert f"privjax audit {bare}" in page.locator(".notice").inner_text()
    page.locator("#weight").focus()
    page.keyboard.press("End")
    assert page.locator("#command").text_content().endswith("--point 2 --to encoder.onnx")
