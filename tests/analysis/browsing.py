"""What tests in a real browser share."""

from __future__ import annotations

from typing import Any

# As the WebDriver standard writes keys.
ENTER, ESCAPE, BACKSPACE, SELECT_ALL = "\ue007", "\ue00c", "\ue003", "\ue009a\ue000"
RIGHT, DOWN, SPACE, TAB = "\ue014", "\ue015", "\ue00d", "\ue004"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# The contrast that WCAG AA asks of text, for every element with text of its own.
CONTRAST = """
const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
function ground(element) {
  for (; element; element = element.parentElement) {
    const colour = rgb(getComputedStyle(element).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return light(colour);
  }
  return 1;
}
return [...document.body.querySelectorAll("*")]
  .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
  .map((e) => [e, [light(rgb(getComputedStyle(e).color)), ground(e)].sort((a, b) => a - b)])
  .filter(([e, [low, high]]) => (high + .05) / (low + .05) < 4.5)
  .map(([e]) => e.outerHTML.slice(0, 100));
"""


def find(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def texts(browser: Any, selector: str) -> list[str]:
    """What is visible of each element."""
    script = "return [...document.querySelectorAll(arguments[0])].map((element) => element.innerText.trim())"
    return browser.execute_script(script, selector)
