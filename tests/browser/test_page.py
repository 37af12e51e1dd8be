"""Tests the page of `cairn serve` in a real browser: Debian's Chromium, driven by selenium (`tools/test --browser`)."""

import shutil

import numpy as np
import pytest

import cairn
from integration.test_serve import Page
from testing.ranks import noise, on_ranks, rows, until

selenium = pytest.importorskip("selenium", reason="not run: no selenium (tools/test --browser)")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="not run: no chromedriver (tools/test --browser)"),
]

WHOLE = noise((64, 16), np.float32, 1)


@pytest.fixture
def browser():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def text(browser, id_: str) -> str:
    return browser.find_element("id", id_).text


def open_page(browser, page: Page) -> None:
    browser.get(f"http://127.0.0.1:{page.port}/")
    until(lambda: browser.find_element("id", "login").is_displayed(), text="the question for the token")
    browser.find_element("id", "token").send_keys(page.token)
    browser.find_element("css selector", "#login button").click()


def test_the_page_shows_a_job_live_and_draws_its_timelines(browser, tmp_path):
    with cairn.local.Cluster(ranks=2, root=tmp_path / "root") as cluster, Page(cluster) as page:
        open_page(browser, page)
        until(lambda: "2 of 2" in text(browser, "jobs"), text="the list of jobs")
        assert page.token not in browser.current_url
        # What happens from now on shows without a reload.
        on_ranks(cluster, lambda rank, client: client.save(4, {"w": rows(WHOLE, rank, 2)}).wait(60))
        until(lambda: "COMMITTED" in text(browser, "checkpoints"), text="the checkpoint")
        until(lambda: "save" in text(browser, "operations"), text="the save")
        browser.find_element("css selector", "#operations button").click()
        until(lambda: browser.find_element("id", "timeline").is_displayed(), text="the timeline")
        labels = [label.text for label in browser.find_elements("css selector", "#chart text")]
        assert labels == ["all ranks", "rank 0", "rank 1"]
        drawn = {bar.get_attribute("class") for bar in browser.find_elements("css selector", "#chart rect")}
        assert {"stage", "write", "commit"} & drawn and not drawn - set(
            "call wait plan prepare stage order write read commit abort".split())
        colours = {bar.value_of_css_property("fill") for bar in browser.find_elements("css selector", "#chart rect")}
        assert len(colours) == len(drawn - {"read"} | ({"write"} if "read" in drawn else set())), "the style applies"
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"
                and "401" not in entry["message"]] == [], "no error, nothing that the policy forbids"


def test_names_are_shown_as_text(browser, tmp_path):
    """A node's name is the agent's own word."""
    name = "<img src=x onerror=document.title='taken'>"
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root", agent_flags=[f"--node={name}"]) as cluster:
        with Page(cluster) as page:
            open_page(browser, page)
            until(lambda: name in text(browser, "ranks"), text="the name as it is")
            assert browser.title == "Cairn"
            assert browser.find_elements("css selector", "#ranks img") == []


def test_a_wrong_token_asks_again(browser, tmp_path):
    with cairn.local.Cluster(ranks=1, root=tmp_path / "root") as cluster, Page(cluster) as page:
        browser.get(f"http://localhost:{page.port}/")
        until(lambda: browser.find_element("id", "login").is_displayed(), text="the question for the token")
        browser.find_element("id", "token").send_keys("wrong")
        browser.find_element("css selector", "#login button").click()
        until(lambda: "not the token" in text(browser, "state"), text="the refusal")
        assert not browser.find_element("id", "page").is_displayed()
