"""Calls E2B's code interpreter for Python."""

import asyncio

import pytest
from e2b_code_interpreter import AsyncSandbox, Sandbox


@pytest.fixture(scope="module")
def code():
    with Sandbox.create(timeout=600) as sandbox:
        yield sandbox


def test_run_code(code):
    assert code.run_code("x = 20\nx + 1").text == "21"
    assert code.run_code("x + 2").text == "22"
    out, err = [], []
    done = code.run_code("import sys\nprint('a')\nprint('b', file=sys.stderr)", on_stdout=lambda m: out.append(m.line), on_stderr=lambda m: err.append(m.line))
    assert done.logs.stdout == ["a\n"] and done.logs.stderr == ["b\n"] and "".join(out) == "a\n" and "".join(err) == "b\n"
    assert code.run_code("import os; os.environ['OWN']", envs={"OWN": "1"}).text == "1"


def test_error(code):
    seen = []
    done = code.run_code("1/0", on_error=seen.append)
    assert done.error.name == "ZeroDivisionError" and "division" in done.error.value and "ZeroDivisionError" in done.error.traceback and seen


def test_results(code):
    done = code.run_code("class H:\n  def _repr_html_(self): return '<b>h</b>'\n  def _repr_json_(self): return {'a': 1}\nH()")
    [result] = done.results
    assert result.html == "<b>h</b>" and result.json == {"a": 1} and result.is_main_result
    assert code.run_code("'a'").results[0].text == "a"


def test_charts(code):
    if code.run_code("import matplotlib").error:
        pytest.skip("needs matplotlib in the image")
    done = code.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='l')\nplt.title('t')\nplt.show()")
    [result] = [r for r in done.results if r.png]
    assert result.chart.type.value == "line" and result.chart.title == "t"
    assert result.chart.elements[0].points == [(1, 3), (2, 4)] or [list(p) for p in result.chart.elements[0].points] == [[1, 3], [2, 4]]


def test_contexts(code):
    code.files.make_dir("/tmp/ctx")
    one = code.create_code_context(cwd="/tmp/ctx")
    code.run_code("y = 1", context=one)
    assert code.run_code("y", context=one).text == "1"
    assert code.run_code("y").error.name == "NameError"
    assert code.run_code("import os; os.getcwd()", context=one).text == "/tmp/ctx"
    assert one.id in [c.id for c in code.list_code_contexts()]
    code.restart_code_context(one)
    assert code.run_code("y", context=one).error.name == "NameError"
    code.remove_code_context(one)
    assert one.id not in [c.id for c in code.list_code_contexts()]


def test_bash(code):
    assert "".join(code.run_code("echo from bash", language="bash").logs.stdout) == "from bash\n"


def test_timeout(code):
    with pytest.raises(Exception, match="(?i)timed? ?out|timeout"):
        code.run_code("import time; time.sleep(60)", timeout=1)
    assert code.run_code("1 + 1").text == "2"


def test_async():
    async def calls():
        s = await AsyncSandbox.create(timeout=60)
        try:
            assert (await s.run_code("1 + 1")).text == "2"
            one = await s.create_code_context()
            assert (await s.run_code("1/0", context=one)).error.name == "ZeroDivisionError"
        finally:
            await s.kill()

    asyncio.run(calls())
