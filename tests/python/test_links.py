"""The links in the pages lead somewhere: the file is there, and so is the heading behind a '#'."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = re.compile(r"^```.*?^```", re.S | re.M)


def tracked() -> list[pathlib.Path]:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True, check=True).stdout.split("\n")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def anchors_of(page: pathlib.Path) -> set[str]:
    """The anchors that the headings of a page have where pages are shown."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def fault_of(page: pathlib.Path, path: str, anchor: str) -> str | None:
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return f"{page.relative_to(ROOT)}: there is no {path}"
    if anchor and target.suffix == ".md" and anchor not in anchors_of(target):
        return f"{page.relative_to(ROOT)}: {path} has no heading #{anchor}"
    return None


def test_links_of_pages_lead_somewhere():
    faults = []
    for page in tracked():
        if page.suffix != ".md":
            continue
        for link in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", page.read_text())):
            if not re.match(r"\w+:", link):
                faults.append(fault_of(page, *(link.split("#") + [""])[:2]))
    assert [fault for fault in faults if fault] == []


def test_pages_that_sources_name_are_there():
    faults = []
    for source in tracked():
        if source.suffix not in {".h", ".cc", ".py", ".proto", ".sh", ".bzl", ".mjs", ".md", ""}:
            continue
        text = source.read_text(errors="replace")
        for page, anchor in re.findall(r"\bdocs/((?:decisions/)?[a-z0-9_-]+\.md)(#[\w-]+)?", text):
            faults.append(fault_of(ROOT / "README.md", f"docs/{page}", anchor[1:]))
    assert [fault for fault in faults if fault] == []
