"""Looks at the site in chromium:   docs/site/check.py FOLDER [PICTURES]      (tools/site_check calls this)"""
import functools
import http.server
import os
import pathlib
import sys
import threading
import time
import urllib.parse

from selenium import webdriver
from selenium.webdriver.common.by import By

NARROW, WIDE = 400, 1280
# What a page of the site has, as its browser sees it.
READ = """
const own = [...document.querySelectorAll("[href], [src]")].map(e => e.href?.baseVal ?? e.href ?? e.src).filter(Boolean);
return {
  links: own,
  anchors: [...document.querySelectorAll("[id], a[name]")].map(e => e.id || e.name),
  fetched: performance.getEntriesByType("resource").map(e => e.name),
  width: document.documentElement.scrollWidth,
  widest: [...document.querySelectorAll("article *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 &&
    !e.closest("pre, .md-typeset__scrollwrap, .highlight")).slice(0, 3).map(e => e.outerHTML.slice(0, 120)),
};
"""
SEARCHES = {"PolicyScope": "PolicyScope", "whatever_fits": "whatever_fits", "gradient wrong": "Where a gradient can be wrong"}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))


def resize(driver, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def picture(driver, folder, page, width):
    resize(driver, width)
    time.sleep(0.2)
    name = (page.strip("/").replace("/", "_") or "home") + f"_{width}.png"
    driver.save_screenshot(os.path.join(folder, name))


def read_pages(driver, folder, root, shots):
    """By the address of each page what it has, and the problems that are seen without the other pages."""
    pages, problems = {}, []
    for file in sorted(folder.rglob("*.html")):
        path = "/" + file.relative_to(folder).as_posix().removesuffix("index.html")
        resize(driver, NARROW)
        driver.get(root + path)
        seen = pages[root + path] = driver.execute_script(READ)
        problems += [f"{path}: console: {line['message']}" for line in driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]
        problems += [f"{path}: fetches {each}" for each in seen["fetched"] if not each.startswith((root, "data:", "blob:"))]
        if seen["width"] > NARROW:
            problems.append(f"{path}: is {seen['width']} pixels wide in a window of {NARROW}: {seen['widest']}")
        if shots:
            picture(driver, shots, path, NARROW)
            picture(driver, shots, path, WIDE)
    return pages, problems


def dead_links(pages, folder, root):
    for page, seen in pages.items():
        for link in dict.fromkeys(seen["links"]):
            address, _, anchor = link.partition("#")
            if not address.startswith(root):
                continue
            path = urllib.parse.unquote(urllib.parse.urlparse(address).path)
            target = folder / path.lstrip("/")
            if not (target / "index.html" if path.endswith("/") else target).is_file():
                yield f"{page.removeprefix(root)}: {link.removeprefix(root)} is not there"
            elif anchor and address in pages and urllib.parse.unquote(anchor) not in pages[address]["anchors"]:
                yield f"{page.removeprefix(root)}: {link.removeprefix(root)} has no such anchor"


def failed_searches(driver, root):
    resize(driver, WIDE)
    for words, wanted in SEARCHES.items():
        driver.get(root + "/")
        driver.find_element(By.CSS_SELECTOR, "input.md-search__input").click()
        driver.find_element(By.CSS_SELECTOR, "input.md-search__input").send_keys(words)
        found, end = "", time.monotonic() + 20
        while wanted not in found and time.monotonic() < end:
            time.sleep(0.2)
            found = driver.execute_script("return document.querySelector('.md-search-result__list')?.innerText ?? ''")
        if wanted not in found:
            yield f'the search for "{words}" does not find "{wanted}"'


def tell(tool, looked_at, problems, pages):
    """Prints what was found, and ends the program with 1 if that is anything, or if there was no page."""
    for problem in problems:
        print(f"{tool}: {problem}")
    print(f"{tool}: {looked_at}, {len(problems)} problems")
    if not pages or problems:
        sys.exit(1)


def main():
    folder = pathlib.Path(sys.argv[1])
    shots = sys.argv[2] if len(sys.argv) > 2 else None
    if shots:
        os.makedirs(shots, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    root = f"http://127.0.0.1:{server.server_port}"
    driver = browser()
    try:
        pages, problems = read_pages(driver, folder, root, shots)
        problems += dead_links(pages, folder, root)
        problems += failed_searches(driver, root)
    finally:
        driver.quit()
    links = sum(address.startswith(root) for seen in pages.values() for address in dict.fromkeys(seen["links"]))
    tell("site_check", f"{len(pages)} pages, {links} links within the site", problems, pages)


if __name__ == "__main__":
    main()
