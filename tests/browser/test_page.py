"""Tests the page of `cairn serve` in a real browser: Debian's Chromium, driven by selenium (`tools/test --browser`)."""

import contextlib
import dataclasses
import shutil
import socket
import urllib.parse

import numpy as np
import pytest

import cairn
from browser.fake_site import FakeSite, Story
from integration.test_serve import Page
from testing.ranks import noise, on_ranks, rows, until

selenium = pytest.importorskip("selenium", reason="not run: no selenium (tools/test --browser)")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="not run: no chromedriver (tools/test --browser)"),
]

WHOLE = noise((64, 16), np.float32, 1)
WIDE, NARROW = 1280, 400


@pytest.fixture(scope="module")
def chromium():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium):
    resize(chromium, WIDE)
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    chromium.get_log("browser")
    yield chromium
    chromium.get("about:blank")


def resize(browser, width: int) -> None:
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})


def css(browser, selector: str) -> list:
    return browser.find_elements("css selector", selector)


def text(browser, selector: str = "body") -> str:
    return browser.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)


def shows(browser, wanted: str, selector: str = "body") -> None:
    until(lambda: wanted in text(browser, selector), text=wanted)


def open_page(browser, page, place: str = "", host: str = "127.0.0.1") -> None:
    browser.get("about:blank")
    browser.get(f"http://{host}:{page.port}/#{place}")
    until(lambda: browser.find_element("id", "login").is_displayed(), text="the question for the token")
    browser.find_element("id", "token").send_keys(page.token)
    browser.find_element("css selector", "#login button").click()
    until(lambda: not browser.find_element("id", "login").is_displayed(), text="the page")


def errors(browser) -> list:
    return [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_the_page_shows_a_job_live_and_draws_its_timelines(browser, tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster, Page(cluster) as page:
        open_page(browser, page)
        shows(browser, "2 of 2 agents", "#jobs")
        shows(browser, "nothing was committed yet", "#now")
        assert page.token not in browser.current_url and "job=demo" in browser.current_url
        # What happens from now on shows without a reload.
        on_ranks(cluster, lambda rank, client: client.save(4, {"w": rows(WHOLE, rank, 2)}).wait(60))
        shows(browser, "last commit: step 4", "#now")
        until(lambda: browser.title.startswith("step 4 · demo"), text="the title")
        until(lambda: len(css(browser, "#now .bars .save")) == 3, text="a bar in each of three plots")
        browser.find_element("css selector", "[data-open]").click()
        until(lambda: css(browser, "#timeline .slices rect"), text="the timeline")
        labels = [label.text for label in css(browser, "#timeline .tracks text")]
        assert labels == ["all ranks", "rank 0", "rank 1"]
        drawn = {bar.get_attribute("class").removeprefix("phase-") for bar in css(browser, "#timeline .slices rect")}
        assert {"stage", "write", "commit"} & drawn and not drawn - set(
            "call wait plan prepare stage order write read commit abort".split())
        colours = {bar.value_of_css_property("fill") for bar in css(browser, "#timeline .slices rect")}
        assert len(colours) == len(drawn - {"read"} | ({"write"} if "read" in drawn else set())), "the style applies"
        css(browser, ".tabs a")[1].click()
        shows(browser, "committed", "#checkpoints table")
        assert errors(browser) == [], "no error, nothing that the policy forbids"


def test_names_are_shown_as_text(browser, tmp_path):
    """A node's name is the agent's own word."""
    name = "<img src=x onerror=document.title='taken'>"
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root", agent_flags=[f"--node={name}"]) as cluster:
        with Page(cluster) as page:
            open_page(browser, page, "job=demo&view=ranks")
            shows(browser, name, "#ranks")
            assert browser.title.endswith("demo · Cairn")
            assert css(browser, "#page img") == []


def test_a_wrong_token_asks_again(browser):
    with FakeSite(Story()) as page:
        browser.get(f"http://localhost:{page.port}/")
        until(lambda: browser.find_element("id", "login").is_displayed(), text="the question for the token")
        browser.find_element("id", "token").send_keys("wrong")
        browser.find_element("css selector", "#login button").click()
        shows(browser, "not the token", "#refused")
        assert not browser.find_element("id", "page").is_displayed()
        open_page(browser, page)


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("ranks", [1, 64, 4096])
def test_any_number_of_ranks_fits_the_screen(browser, ranks, width):
    resize(browser, width)
    with FakeSite(Story(ranks=ranks, running="save", late=(0,), failed=(12,))) as page:
        open_page(browser, page)
        for view, wanted in (("now", "Save of step 3100: writing"), ("checkpoints", "before-the-new-data"),
                             ("operations", "RANK_LATE"), ("ranks", "LATE")):
            browser.execute_script(f"location.hash = 'job=llm&view={view}'")
            shows(browser, wanted, f"#{view}")
            shown, needed = browser.execute_script(
                "const {clientWidth, scrollWidth} = document.documentElement; return [clientWidth, scrollWidth];")
            assert needed <= shown, f"{view} needs {needed} pixels, and the screen has {shown}"
        assert len(css(browser, "#ranks tbody tr")) == min(ranks, 20)
        assert "LATE" in css(browser, "#ranks tbody tr")[0].text
        assert (f"{ranks - 20:,} more ranks are not shown" in text(browser, "#ranks")) == (ranks > 20)
        assert errors(browser) == []


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_refresh_moves_nothing_and_keeps_focus(browser, width):
    resize(browser, width)
    with FakeSite(Story(ranks=64, running="save", failed=(3,))) as page:
        open_page(browser, page)
        shows(browser, "Save of step 3100", "#now")
        until(lambda: css(browser, "#now .bars .save"), text="the plots")
        link = css(browser, "#now .running a")[0]
        browser.execute_script("arguments[0].focus({preventScroll: true}); scrollTo(0, 200)", link)
        browser.execute_script("""
            window.moved = 0;
            new PerformanceObserver((list) => { for (const each of list.getEntries()) window.moved += each.value; })
              .observe({type: "layout-shift"});
            window.node = document.querySelector("#now .running");""")
        for share in (0.5, 0.75, 0.875):
            page.story = dataclasses.replace(page.story, share=share)
            shows(browser, f"({int(100 * share)}%)", "#now")
        shows(browser, "GiB/s", "#now")
        assert browser.execute_script("return window.moved") == 0
        assert browser.execute_script("return scrollY") == 200
        assert browser.switch_to.active_element == link
        assert browser.execute_script("return window.node === document.querySelector('#now .running')")


def test_rows_that_change_their_order_keep_focus(browser):
    with FakeSite(Story(saves=3)) as page:
        open_page(browser, page, "job=llm&view=checkpoints")
        shows(browser, "300", "#checkpoints table")
        link = browser.find_element("link text", "200")
        browser.execute_script("arguments[0].focus()", link)
        page.story = dataclasses.replace(page.story, saves=5)
        shows(browser, "500", "#checkpoints table")
        assert browser.switch_to.active_element == link and link.text == "200"


def test_plots_are_read_by_pointer_and_by_keys(browser):
    from selenium.webdriver import ActionChains, Keys

    with FakeSite(Story(failed=(12,))) as page:
        open_page(browser, page)
        until(lambda: len(css(browser, "#now .bars")) == 3, text="the plots")
        assert text(browser, ".readout").startswith("Last save: step 3000")
        places = css(browser, ".bars")[1].find_elements("css selector", ".place")
        ActionChains(browser).move_to_element(places[12]).perform()
        shows(browser, "step 1300 · failed: RANK_LATE", ".readout")
        css(browser, ".bars")[0].find_elements("css selector", ".place")[5].click()
        shows(browser, "step 600 · took", ".readout")
        plot = css(browser, ".bars")[2]
        browser.execute_script("arguments[0].focus()", plot)
        plot.send_keys(Keys.ARROW_RIGHT)
        shows(browser, "step 700", ".readout")
        assert len(css(browser, ".save.chosen")) == 3, "it is shown in each plot"
        plot.send_keys(Keys.HOME)
        shows(browser, "step 100", ".readout")
        plot.send_keys(Keys.ENTER)
        shows(browser, "Save of step 100", "#timeline")


def test_a_link_names_job_step_and_view(browser):
    with FakeSite(Story()) as page:
        open_page(browser, page, "job=llm&view=checkpoints&step=700")
        shows(browser, "learning_rate", "#checkpoints .below")
        browser.find_element("link text", "Saves and loads of this step").click()
        shows(browser, "Only those of step 700", "#operations")
        css(browser, "#operations table a")[0].click()
        shows(browser, "Save of step 700", "#timeline")
        sent = urllib.parse.urlsplit(browser.current_url).fragment
        browser.get("about:blank")
        browser.get(f"http://127.0.0.1:{page.port}/#{sent}")
        shows(browser, "Save of step 700", "#timeline")
        browser.get(f"http://127.0.0.1:{page.port}/#job=llm&view=operations&operation=7%402001-01-01T00%3A00%3A00Z")
        shows(browser, "does not remember this operation", "#timeline")


def test_a_page_left_open_goes_on_after_restarts(browser):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with FakeSite(Story(), port) as page:
        open_page(browser, page)
        shows(browser, "Nothing runs", "#now")
        page.story = dataclasses.replace(page.story, unreachable=True)
        shows(browser, "connection refused", "[role=alert].trouble")
        assert browser.title.startswith("✖ no answer") and "last commit: step 3000" in text(browser, "#now")
        page.story = dataclasses.replace(page.story, unreachable=False, saves=31)
        shows(browser, "last commit: step 3100", "#now")
        assert css(browser, ".trouble") == []
    shows(browser, "The server of this page does not answer", ".trouble")
    with FakeSite(Story(saves=40), port):
        shows(browser, "last commit: step 4000", "#now")
        assert not browser.find_element("id", "login").is_displayed()


@pytest.mark.parametrize("story, place, wanted", [
    (Story(jobs=False), "", "There is no job yet"),
    (Story(registered=False), "", "No agent of this job is registered; last commit: step 3000"),
    (Story(trainers=False, saves=0), "", "let each call cairn.connect()"),
    (Story(unreachable=True), "", "Check --coordinator and that the coordinator runs"),
    (Story(), "job=nope", "There is no job nope here"),
    (Story(ranks=64, missing=(7,), stopped=(5,), stalled=2), "", "1 of 64 ranks has no agent (rank 7)"),
])
def test_each_state_says_what_to_do(browser, story, place, wanted):
    with FakeSite(story) as page:
        open_page(browser, page, place)
        shows(browser, wanted)


def test_hostile_words_stay_text(browser):
    evil = "\"><img src=x onerror=document.title='taken'><script>document.title='taken'</script>"
    with FakeSite(Story(node=evil + "{}", message=evil, failed=(29,), running="save", late=(1,))) as page:
        open_page(browser, page)
        shows(browser, "onerror", "#now")
        browser.execute_script("location.hash = 'job=llm&view=ranks'")
        shows(browser, "onerror", "#ranks")
        assert css(browser, "#page img, #page script") == [] and "taken" not in browser.title.split(" · ")
        assert errors(browser) == []


def test_dark_mode_and_the_time_zone_are_the_viewers(browser):
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [dark]})
    try:
        with FakeSite(Story(now=1_790_000_000.0)) as page:
            open_page(browser, page)
            shows(browser, "Nothing runs", "#now")
            assert "times in Asia/Tokyo" in text(browser, "#state")
            shows(browser, "2026-09-21 23:01:20", "#now")
            back = browser.find_element("tag name", "body").value_of_css_property("background-color")
            assert back == "rgba(20, 23, 27, 1)"
    finally:
        browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
