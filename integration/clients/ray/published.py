"""A plugin that lets Ray's own tests use demesne, and the table of what they did: published.py RESULTS [PAGE]."""

import pathlib
import re
import sys
import xml.etree.ElementTree as xml

import pytest

HERE = pathlib.Path(__file__).parent
MARK = "<!-- made by make ray UPDATE=1 -->\n"
HEAD = "| tests of Ray | result | not applicable, and why |\n|---|---|---|\n"


def pytest_configure():
    import demesne.ray
    from ray.experimental.sandbox.backend import gvisor

    demesne.ray.use()
    gvisor.GVisorSandboxBackend = demesne.ray.DemesneBackend  # tests import this name


@pytest.fixture(scope="session", autouse=True)
def demesne_on_workers():
    import ray

    ray.init(num_cpus=2, object_store_memory=80 << 20, runtime_env={"worker_process_setup_hook": "demesne.ray.use"})
    init, ray.init = ray.init, lambda: None  # of a test that starts Ray itself
    yield
    ray.init = init
    ray.shutdown()


def rows(results):
    for line in (HERE / "published.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        name, _, why = line.split("\t")
        told = ""
        if (found := results / (pathlib.Path(name).name + ".xml")).exists():
            kinds = [{child.tag for child in case} for case in xml.parse(found).iter("testcase")]
            failed, skipped = (sum(bool(k & tags) for k in kinds) for tags in ({"failure", "error"}, {"skipped"}))
            counts = ((len(kinds) - failed - skipped, "passed"), (skipped, "skipped"), (failed, "failed"))
            told = ", ".join(f"{n} {kind}" for n, kind in counts if n)
        yield f"| `{name}` | {told or '–'} | {why} |\n"


def main():
    table = "".join(rows(pathlib.Path(sys.argv[1])))
    print(table, end="")
    if len(sys.argv) > 2:
        page = pathlib.Path(sys.argv[2])
        before, after = page.read_text().split(MARK)
        page.write_text(before + MARK + HEAD + table + re.sub(r"\A(\|.*\n)*", "", after))


if __name__ == "__main__":
    main()
