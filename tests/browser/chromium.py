"""Chromium without a window, and what it noticed."""

import json
import shutil
from urllib.parse import urlsplit

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

_OPTIONS = ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=1")
_LOGS = {"browser": "ALL", "performance": "ALL"}
_TALLEST = 6000


class Browser:
    """Chromium, and what it noticed since it was last asked."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, url, *, width=1280, scheme="light", **media):
        """With media features, their names with underscores: ``prefers_contrast="more"``."""
        self.resize(width)
        features = [
            {"name": name.replace("_", "-"), "value": value}
            for name, value in {"prefers_color_scheme": scheme, **media}.items()
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get(url)

    def enter(self, page):
        """By the link; once."""
        self.open(page.link)
        self.wait_for("h1")

    def wait_for(self, selector):
        WebDriverWait(self.driver, 30).until(lambda _: self.all(selector))

    def press(self, key):
        """A key of the keyboard, by its name."""
        code = {"Tab": 9, "Enter": 13}[key]
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ({"type": "keyDown"} | text, {"type": "keyUp"}):
            self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", pressed | kind)

    def link(self, text):
        return self.driver.find_element("link text", text)

    def resize(self, width, height=900):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def run(self, script, *arguments):
        return self.driver.execute_script(f"return {script}", *arguments)

    def complaints(self):
        """Return the console's messages."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def hosts(self):
        """Whom it asked for anything; files and what is in the page itself have none."""
        events = [json.loads(entry["message"]) for entry in self.driver.get_log("performance")]
        asked = [event["message"] for event in events]
        urls = [
            event["params"]["request"]["url"]
            for event in asked
            if event["method"] == "Network.requestWillBeSent"
        ]
        return {urlsplit(url).hostname for url in urls} - {None}

    def width(self):
        """Return the page's width; more than the window's means that it scrolls sideways."""
        return self.run("document.documentElement.scrollWidth")

    def keep_picture(self, path, *, width, height=None):
        """Of the whole page, or of its top."""
        height = height or self.run("document.documentElement.scrollHeight")
        self.resize(width, min(height, _TALLEST))
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(path))


def is_here():
    """Return whether Chromium and its driver are installed."""
    return bool(_chromium() and shutil.which("chromedriver"))


def start(profile):
    """A browser that knows nothing of others; this folder is its own."""
    options = ChromeOptions()
    options.binary_location = _chromium()
    options.set_capability("goog:loggingPrefs", _LOGS)
    for option in (*_OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    return Browser(Chrome(options=options, service=Service(shutil.which("chromedriver"))))


def _chromium():
    return shutil.which("chromium") or shutil.which("google-chrome")
