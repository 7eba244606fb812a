"""Looks at pages of write_report() in chromium:   SHOTS=FOLDER tools/report_check.py PAGE.html...   (tools/report_check calls this)"""
import os
import pathlib
import sys

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "docs" / "site"))
from check import NARROW, WIDE, browser, resize, tell  # noqa: E402

# The names of the page's scripts are those of its global scope.
READ = """
const shown = id => !document.getElementById(id).closest("[hidden]");
const sums = {hold: 1, release: -1, replayed: 1, drop: -1};
let held = 0, excess = 0;
for (const event of memory.events) {
  held += sums[event.change] * event.bytes;
  excess = Math.max(excess, (event.counted ?? 0) - held);
}
return {
  title: document.getElementById("title").textContent,
  notes: ["subtitle", "memory-note", "ops-note", "graph-note"].filter(id => !document.getElementById(id).textContent),
  tiles: [...document.querySelectorAll(".tile")].filter(tile => !tile.querySelector("strong").textContent).length,
  ops: regions.reduce((sum, region) => sum + region.ops.length, 0),
  nodes: regions[0].ops.filter(op => op.node || op.outputs.length).length,
  chart: !!document.getElementById("canvas"),
  counted: data.bound !== null && data.bound !== "peak",
  excess,
  empty: ["effects", "modules", "long"].filter(id => shown(id) && !document.querySelector("#" + id + " tbody tr")),
  undefined: [...document.querySelectorAll("td, .tile, .note, .legend span")].map(e => e.textContent)
    .filter(text => /undefined|NaN|null|Infinity|\\[object/.test(text)).slice(0, 3),
  fetched: performance.getEntriesByType("resource").map(entry => entry.name).filter(name => !name.startsWith("data:")),
};
"""
TOO_WIDE = """
return {
  width: document.documentElement.scrollWidth,
  widest: [...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll"))
    .slice(0, 3).map(e => e.outerHTML.slice(0, 120)),
};
"""
# How many of the chart's pixels are drawn, and whether it has as many as the screen has for it.
CHART = """
const canvas = document.getElementById("canvas"), copy = document.createElement("canvas");
[copy.width, copy.height] = [canvas.width, canvas.height];
const context = copy.getContext("2d", {willReadFrequently: true});
context.drawImage(canvas, 0, 0);
const pixels = context.getImageData(0, 0, copy.width, copy.height).data;
let drawn = 0;
for (let i = 3; i < pixels.length; i += 4) drawn += pixels[i] > 0;
return {drawn, sharp: Math.abs(canvas.width - canvas.clientWidth * devicePixelRatio) <= 1, width: canvas.width};
"""


class Page:
    def __init__(self, driver, path):
        self.driver, self.problems = driver, []
        resize(driver, WIDE)
        driver.get(pathlib.Path(path).resolve().as_uri())

    def check(self, holds, problem):
        if not holds:
            self.problems.append(problem)

    def rows(self):
        return self.driver.execute_script("return [...document.querySelectorAll('#table-body tr')].map(row => row.innerText)")

    def tip(self):
        return self.driver.execute_script("const tip = document.getElementById('tip'); return tip.hidden ? null : tip.innerText")

    def point_at(self, element, x=0, y=0):
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", element)
        ActionChains(self.driver, duration=20).move_to_element_with_offset(element, x, y).perform()
        return self.tip()

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def check_texts(self):
        seen = self.driver.execute_script(READ)
        self.check(seen["title"], "has no title")
        self.check(not seen["notes"], f"says nothing at {seen['notes']}")
        self.check(not seen["tiles"], "has tiles without a value")
        self.check(not seen["empty"], f"shows empty tables: {seen['empty']}")
        self.check(not seen["undefined"], f"shows what is no text: {seen['undefined']}")
        self.check(not seen["fetched"], f"fetches {seen['fetched']}")
        self.check(not seen["counted"] or seen["excess"] <= 0, f"counts {seen['excess']} bytes more than are held")
        return seen

    def check_table(self, ops):
        rows = self.rows()
        self.check(bool(rows) or not ops, "has no row in the table of ops")
        if not rows:
            return
        name = rows[-1].split("\t")[0]
        field = self.find("#filter")
        field.send_keys(name)
        found = self.rows()
        self.check(found and all(name.lower() in row.lower() for row in found), f'filters by "{name}" and shows {found[:3]}')
        field.clear()
        field.send_keys("no op has this name")
        self.check(not self.rows(), "shows ops that the filter does not name")
        field.clear()
        field.send_keys(" ")  # clear() is no input
        self.check(self.rows() == rows, "does not show all ops without a filter")
        self.find("#table-head th").click()
        names = [row.split("\t")[0] for row in self.rows()]
        self.check(sorted(names) == sorted(row.split("\t")[0] for row in rows), "loses ops when they are sorted")
        by_name = self.driver.execute_script("return arguments[0].toSorted((a, b) => a.localeCompare(b))", names)
        self.check(names == by_name, "does not sort by name")
        self.find("#each").click()
        self.check(len(self.rows()) >= min(ops, 400), "has too few rows, one for each op")
        self.find("#each").click()

    def check_chart(self):
        for zoom in (1, 2, 0.5, 1):
            metrics = {"width": round(WIDE / zoom), "height": round(900 / zoom), "deviceScaleFactor": zoom, "mobile": False}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
            drawn = self.driver.execute_script(CHART)
            self.check(drawn["drawn"] > 1000 and drawn["sharp"], f"draws its chart wrongly at a zoom of {zoom}: {drawn}")
        canvas = self.find("#canvas")
        tip = self.point_at(canvas)
        self.check(tip is not None and "at " in tip, f"shows {tip!r} where one points at the chart")
        self.check(self.point_at(self.find("#title")) is None, "goes on telling of the chart when one points elsewhere")

    def check_graph(self, nodes):
        drawn = self.driver.find_elements(By.CSS_SELECTOR, "#graph-view g.node")
        self.check(len(drawn) == min(nodes, 150), f"draws {len(drawn)} of {nodes} nodes")
        self.check(not drawn or self.find("#graph-view path"), "draws no edge")
        if drawn:
            tip = self.point_at(drawn[len(drawn) // 2])
            self.check(tip is not None and " op " in tip, f"shows {tip!r} where one points at a node")
            self.point_at(self.find("#title"))
        later = self.find("#later")
        if later.is_displayed() and later.is_enabled():
            later.click()
            self.check(self.driver.find_elements(By.CSS_SELECTOR, "#graph-view g.node"), "draws no later ops")
        regions = self.driver.find_elements(By.CSS_SELECTOR, "#graph-region option")
        regions[-1].click()
        self.check(self.find("#graph-view *"), "draws nothing of the last region")

    def check_width(self):
        resize(self.driver, NARROW)
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        seen = self.driver.execute_script(TOO_WIDE)
        fits = seen["width"] <= NARROW and not seen["widest"]
        self.check(fits, f"is {seen['width']} pixels wide in a window of {NARROW}: {seen['widest']}")

    def check_colours(self):
        for scheme in ("dark", "light"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def check_console(self):
        lines = [line for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]
        self.problems += [f"console: {line['message']}" for line in lines]


def take_pictures(driver, folder, name):
    os.makedirs(folder, exist_ok=True)
    for width in (NARROW, WIDE):
        resize(driver, width)
        driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        driver.execute_script("scrollTo(0, 0)")
        driver.save_screenshot(os.path.join(folder, f"{name}_{width}.png"))


def look_at(driver, path, shots):
    page = Page(driver, path)
    # A script that failed leaves nothing to look at.
    page.check_console()
    if not page.problems:
        seen = page.check_texts()
        page.check_table(seen["ops"])
        if seen["chart"]:
            page.check_chart()
        page.check_graph(seen["nodes"])
        page.check_width()
        page.check_colours()
        page.check_console()
    if shots:
        take_pictures(driver, shots, pathlib.Path(path).stem)
    return page.problems


def main():
    pages = sys.argv[1:]
    driver = browser()
    try:
        problems = [f"{path} {problem}" for path in pages for problem in look_at(driver, path, os.environ.get("SHOTS"))]
    finally:
        driver.quit()
    tell("report_check", f"{len(pages)} pages", problems, pages)


if __name__ == "__main__":
    main()
