"""Prints the table of what works with demesne, from the results that pytest wrote: report.py RESULTS [PAGE].

With PAGE it replaces the rows of the parts that ran in the table of that page. parts.txt names the parts, and their paths; a
test whose name has e2b went through the package's own path for E2B.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).parent
MARK = "<!-- made by make python UPDATE=1 -->\n"
HEAD = "| package | path | calls tried | result |\n|---|---|---|---|\n"


def rows(environment, package, usual, what, results):
    """The rows of a part, one for each path."""
    pinned = (HERE / f"{environment}.txt").read_text()
    version = re.search(rf"^{re.escape(package)}==(\S+)$", pinned, re.M | re.I)[1]
    paths = {}
    for case in xml.parse(results).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        path = "E2B" if re.search("(?<!/)e2b", name.lower()) else usual
        kinds = {child.tag: (child.get("message") or "").splitlines()[:1] for child in case}
        kind = "failed" if kinds.keys() & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        paths.setdefault(path, []).append((kind, case.get("name")))
    for path, cases in sorted(paths.items()):
        count = {kind: sum(k == kind for k, _ in cases) for kind in ("passed", "skipped", "failed")}
        result = ", ".join(f"{n} {kind}" for kind, n in count.items() if n)
        bad = [name for kind, name in cases if kind == "failed"]
        yield f"| {package} {version} | {path} | {what} | {result}{': ' + ', '.join(bad[:5]) if bad else ''} |\n"


def main():
    found = {}
    for line in (HERE / "parts.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        part, environment, package, usual, what = line.split("\t")
        results = pathlib.Path(sys.argv[1]) / f"{part}.xml"
        if results.exists():
            found[package] = list(rows(environment, package, usual, what, results))
    for lines in found.values():
        print("".join(lines), end="")
    if len(sys.argv) > 2:
        page = pathlib.Path(sys.argv[2])
        before, after = page.read_text().split(MARK)
        table, _, rest = after.partition("\n\n")
        kept = [line + "\n" for line in table.splitlines()[2:]]
        kept = [line for line in kept if line.split()[1] not in found]
        new = sorted(kept + [line for lines in found.values() for line in lines], key=str.lower)
        page.write_text(before + MARK + HEAD + "".join(new).rstrip("\n") + "\n\n" + rest)


main()
