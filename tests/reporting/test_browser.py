"""The page in Chromium, without a network."""

import os
import shutil

import pytest
import synthetic_results as made

from privjax.reporting.page import render_html

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
    missing = "playwright is not installed" if sync_playwright is None else "chromium is not installed"
    if os.environ.get("CI"):
        pytest.fail(f"{missing}: the page must be tested here.", pytrace=False)
    pytest.skip(f"{missing}: the page is not tested.", allow_module_level=True)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """Three weights, two seeds, two private variables; names that look like markup; a diverged member."""
    members, reports = [], {}
    for member, (seed, weight) in enumerate((s, w) for s in (0, 1) for w in (0.0, 2.0, 8.0)):
        leakage, age = 0.8 - 0.08 * weight + 0.02 * seed, 0.5 - 0.05 * weight
        attacks = made.attack("ridge", age - 0.1, discrete=False), made.attack(EVIL, age, discrete=False)
        reports[member] = made.audit(
            made.attribute(leakage, strongest=leakage + 0.03, name="user"),
            made.attribute(age, name=EVIL, discrete=False, attacks=attacks),
        )
        members.append(made.member(member, weight, seed, utility=0.95 - 0.03 * weight))
    diverged = {"status": "diverged", "utility": None, "effective_rank": None, "live_units": None}
    members.append(made.member(6, 9.0, 0, **diverged))
    page = tmp_path_factory.mktemp("audited") / f"{EVIL[2:8]}.html"
    page.write_text(render_html(made.summary(members, reports, name=EVIL)), encoding="utf-8")
    return page


@pytest.fixture
def open_page(browser):
    """Opens a page; in the end, checks that it logged nothing and requested nothing."""
    contexts, messages, requests = [], [], []

    def open_(path, address="", **settings):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        contexts.append(context)
        context.set_default_timeout(20_000)
        context.route(lambda url: not url.startswith("file:"), lambda route: route.abort())
        page = context.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: (messages.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri() + address)
        page.wait_for_selector("#training svg.main-svg")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert messages == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


def main_scores(page):
    """Attackers and their main scores, as the audit table shows them."""
    rows = page.locator(".audit tbody tr").all()
    return {
        row.locator("th").inner_text().split("\n")[0]: row.locator("td").first.inner_text().split("\n")[0]
        for row in rows
    }


def exported(page):
    """The number of the member in the command."""
    return page.locator(".facts code").text_content().split("--member ")[1].split()[0]


def test_the_page_opens_at_the_operating_point_and_the_slider_selects_another(open_page, audited):
    page = open_page(audited)
    # The largest utility minus leakage is at weight 8; of its seeds, 0 leaks less.
    assert exported(page) == "2"
    assert main_scores(page)["quadratic"] == "0.190"
    assert "The operating point (diamond)" in page.locator(".facts").inner_text()
    page.locator("#weight").focus()
    page.keyboard.press("ArrowLeft")
    assert exported(page) == "1"
    assert main_scores(page) == {
        "quadratic": "0.670",
        "random_forest": "0.640",
        "linear_svm": "0.590",
        "network": "none",
        "activity alone": "0.200",
    }
    assert "failed: ValueError: it <b>broke</b>" in page.locator(".audit").inner_text()
    assert page.locator("#weight").get_attribute("aria-valuetext") == "weight 2"
    spoken = page.locator("#selection")
    assert spoken.get_attribute("aria-live") == "polite"
    assert spoken.text_content() == "Member 1: weight 2, seed 0, utility 0.890, leakage 0.670"
    page.locator("#seed").select_option(label="1")
    assert main_scores(page)["quadratic"] == "0.690"
    assert page.locator("tr.selected th").first.inner_text() == "4"
    page.locator(".facts a").click()
    expect(page.locator(".audit")).to_contain_text("0.190")


def test_a_click_on_the_curve_selects(open_page, audited):
    page = open_page(audited)
    place = """(div) => {
      const { xaxis, yaxis } = div._fullLayout, box = div.getBoundingClientRect();
      const { x, y } = div.data.find((trace) => trace.error_x);
      return [box.left + xaxis._offset + xaxis.d2p(x[0]), box.top + yaxis._offset + yaxis.d2p(y[0])];
    }"""
    x, y = page.locator("#curve").evaluate(place)
    page.mouse.move(x, y)
    page.wait_for_selector(".hovertext")
    text = page.locator("#curve .hoverlayer").text_content()
    assert "weight 0 (2 seeds)" in text
    assert "utility 0.950 [0.950, 0.950]" in text
    page.mouse.click(x, y)
    expect(page.locator(".facts h2")).to_contain_text("Member 0:")
    assert main_scores(page)["quadratic"] == "0.830"


def test_links_and_private_variables(open_page, audited):
    page = open_page(audited, "#member-6")
    assert "not audited" in page.locator(".audit").inner_text()
    assert page.locator(".summary dd").all_inner_texts() == ["none", "unknown"]
    page.locator("#attribute").select_option(index=1)
    page.locator('a[href="#member-1"]').first.click()
    expect(page.locator(".facts h2")).to_contain_text("Member 1:")
    assert page.url.endswith("#member-1")
    assert main_scores(page)[EVIL] == "0.400"
    assert page.locator("#curve .xtitle").text_content().startswith("leakage of </script><script>")
    assert page.locator("h1").inner_text() == EVIL
    assert page.locator("img").count() == 0
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".facts button").click()
    expect(page.locator(".facts button")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "privjax export runs/people --member 1 --to encoder.onnx"


def test_dark_screens_and_print(open_page, audited):
    page = open_page(audited)

    def style(selector, name):
        return page.locator(selector).first.evaluate(f"(element) => getComputedStyle(element).{name}")

    light = style("body", "backgroundColor")
    width = page.locator("#curve svg").first.evaluate("(svg) => svg.clientWidth")
    assert style(".chart", "filter") == "none"
    page.emulate_media(color_scheme="dark")
    assert style("body", "backgroundColor") != light
    assert style(".chart", "filter").startswith("invert")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert style(".chart", "filter") == "none"
    expect(page.locator("#curve svg").first).to_have_js_property("clientWidth", 660)
    assert not page.locator("#weight").is_visible()
    rows = page.locator("tr[data-member]").all()
    assert len(rows) == 14
    box, last = page.locator(".scroll").last.bounding_box(), rows[-1].bounding_box()
    assert last["y"] + last["height"] <= box["y"] + box["height"] + 1
    for place in ("pre", ".audit table", ".entries", ".facts code", "#curve svg", "li"):
        assert page.locator(place).first.is_visible()
    page.emulate_media(media="screen", color_scheme="light")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator("#curve svg").first).to_have_js_property("clientWidth", width)
    assert not page.locator("pre").is_visible()
    page.pdf()  # the browser's own printing, with nothing logged


def test_phones_and_sweeps_without_audits(open_page, audited, tmp_path):
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    bare = tmp_path / "bare.html"
    members = [made.member(i, float(i), 0) for i in range(3)]
    bare.write_text(render_html(made.summary(members, name=EVIL)), encoding="utf-8")
    for path in (audited, bare):
        page = open_page(path, **phone)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert "privjax audit runs/people" in page.locator(".notice").inner_text()
    page.locator("#weight").focus()
    page.keyboard.press("End")
    assert exported(page) == "2"


def test_a_page_without_scripts(browser, audited):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(audited.as_uri())
    assert page.locator(".facts h2").inner_text() == "Member 2: weight 8, seed 0"
    assert page.locator(".audit tbody tr").count() == 5
    assert not page.locator("#controls").is_visible()
    context.close()
