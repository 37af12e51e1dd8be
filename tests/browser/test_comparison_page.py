"""Looks at the page of `cairn corpus bpe compare --html` in a real browser (`tools/test --browser`)."""

import os
import pathlib
import shutil
import subprocess

import pytest

selenium = pytest.importorskip("selenium", reason="not run: no selenium (tools/test --browser)")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="not run: no chromedriver (tools/test --browser)"),
]

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAIRN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", ROOT / "dist" / "bin")) / "cairn"
LONG = "a-language-with-a-very-long-name-that-does-not-fit <b>&amp;"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium import webdriver

    directory = tmp_path_factory.mktemp("comparison")
    texts = {"english": "the cat sat on the mat\n" * 200, LONG: "ein Kätzchen saß auf der Matte\n" * 200}
    for i, text in enumerate(texts.values()):
        (directory / f"{i}.txt").write_text(text)
    for size in (270, 300):
        subprocess.run([CAIRN, "corpus", "bpe", "train", directory / "0.txt", f"--vocab-size={size}",
                        f"--output={directory / str(size)}"], check=True, capture_output=True)
    subprocess.run([CAIRN, "corpus", "bpe", "compare", directory / "270", directory / "300", "--html",
                    directory / "page.html", *(f"--text={name}={directory / f'{i}.txt'}"
                                               for i, name in enumerate(texts))], check=True, capture_output=True)
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.get(f"file://{directory / 'page.html'}")
    yield driver
    driver.quit()


def script(browser, code):
    return browser.execute_script(f"return {code}")


def test_bars_have_the_lengths_of_their_numbers(browser):
    for chart in range(3):
        bars = script(browser, f"[...document.querySelectorAll('svg')[{chart}].querySelectorAll('g')].map(g => ["
                               "g.querySelector('rect').getBBox().width, "
                               "parseFloat(g.querySelector('text').textContent)])")
        assert len(bars) == (4 if chart < 2 else 2)
        longest, most = max(bars, key=lambda bar: bar[1])
        for width, number in bars:
            assert width / longest == pytest.approx(number / most, abs=0.01)
    assert browser.get_log("browser") == []
    assert LONG in script(browser, "document.body.innerText") and not browser.find_elements("css selector", "b")


@pytest.mark.parametrize("scheme, back", [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 27)")])
def test_the_page_is_light_or_dark_and_readable(browser, scheme, back):
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                            {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    assert script(browser, "getComputedStyle(document.body).backgroundColor") == back
    text = script(browser, "getComputedStyle(document.querySelector('svg text')).fill")
    assert text == script(browser, "getComputedStyle(document.body).color") != back


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_wider_than_the_window(browser, width):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    assert script(browser, "document.documentElement.scrollWidth") <= width
    for box in script(browser, "[...document.querySelectorAll('svg text')].map(t => {const b = t.getBBox(); "
                               "return [b.x, b.x + b.width];})"):
        assert box[0] >= 0 and box[1] <= 900
