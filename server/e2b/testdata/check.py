# Makes charts, frames and images, and checks what results.py, whose path is the argument, adds to their results: python3 check.py results.py
import datetime
import json
import sys

exec(open(sys.argv[1]).read())
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

shown = []
import builtins
builtins.display = shown.append


def chart(*draw):
    """The data of a figure that functions draw, as a client reads it."""
    figure, axes = plt.subplots(1, len(draw), squeeze=False)
    for f, ax in zip(draw, axes[0]):
        f(ax)
    made = json.loads(json.dumps(figure._repr_mimebundle_(include=None, exclude=None), allow_nan=False))
    plt.close(figure)
    return made.get("e2b/chart")


def check(got, **want):
    for key, value in want.items():
        assert got[key] == value, (key, got[key], value)


def labelled(ax):
    ax.plot([1, 2], [1.5, float("nan")], label="a")
    ax.axhline(1)
    ax.set(title="T", xlabel="Time (s)", ylabel="Size", yscale="log")


check(
    chart(labelled), type="line", title="T", x_label="Time (s)", x_unit="s", y_label="Size", y_unit=None, x_scale="linear", y_scale="log",
    elements=[{"label": "a", "points": [[1.0, 1.5], [2.0, None]]}],
)
day = datetime.datetime(2024, 5, 1)
got = chart(lambda ax: ax.plot([day, day + datetime.timedelta(1)], ["p", "q"]))
check(got, x_scale="datetime", y_scale="categorical", y_ticks=["p", "q"], y_tick_labels=["p", "q"])
check(got["elements"][0], label="", points=[["2024-05-01T00:00:00+00:00", "p"], ["2024-05-02T00:00:00+00:00", "q"]])
assert all(datetime.datetime.fromisoformat(t) for t in got["x_ticks"]) and len(got["x_ticks"]) == len(got["x_tick_labels"])
check(chart(lambda ax: ax.scatter([1, 2], [3, 4], label="s")), type="scatter", title=None, elements=[{"label": "s", "points": [[1.0, 3.0], [2.0, 4.0]]}])


def grouped(ax):
    ax.bar([-0.2, 0.8], [1, 2], width=0.4, label="m")
    ax.bar([0.2, 1.2], [3, 4], width=0.4, label="n")
    ax.set_xticks([0, 1], ["x", "y"])


check(chart(grouped), type="bar", elements=[{"label": label, "value": v, "group": g} for label, v, g in [("x", 1, "m"), ("y", 2, "m"), ("x", 3, "n"), ("y", 4, "n")]])
check(chart(lambda ax: ax.barh(["a", "b"], [5, 6])), elements=[{"label": "a", "value": 5.0, "group": ""}, {"label": "b", "value": 6.0, "group": ""}])
check(chart(lambda ax: ax.hist([1, 2, 2, 3], bins=2)), type="bar", elements=[{"label": "1.5", "value": 1.0, "group": ""}, {"label": "2.5", "value": 3.0, "group": ""}])
check(chart(lambda ax: ax.pie([90, 10], labels=["No", "Yes"])), type="pie", elements=[{"label": "No", "angle": 324.0, "radius": 1.0}, {"label": "Yes", "angle": 36.0, "radius": 1.0}])
box = {"label": "", "min": 76.0, "first_quartile": 84.75, "median": 88.0, "third_quartile": 90.5, "max": 95.0, "outliers": []}
got = chart(lambda ax: ax.boxplot([[95, 89, 76, 91, 84, 87], [1, 2, 3, 100]]))
check(got, type="box_and_whisker")
check(got["elements"][0], **dict(box, label=got["elements"][0]["label"], min=84.0, outliers=[76.0]))
check(got["elements"][1], outliers=[100.0])
got = chart(labelled, grouped)
check(got, type="superchart", title=None)
assert [c["type"] for c in got["elements"]] == ["line", "bar"]
check(chart(lambda ax: ax.add_artist(plt.Circle((0, 0), 1))), type="unknown", elements=[])
assert chart(lambda ax: ax.plot(range(60000))) is None, "a large chart"
assert plt.figure()._repr_mimebundle_() == {}, "a figure without a chart"
plt.savefig("/tmp/figure.png")
assert not shown, "matplotlib's own files"
import pandas
frame = pandas.DataFrame({"d": pandas.to_datetime(["2024-01-01", None]), "n": [1, float("nan")], "s": ["a", None], 3: [True, False]})
check(frame._repr_mimebundle_()["e2b/data"], d=["2024-01-01T00:00:00", None], n=[1.0, None], s=["a", None], **{"3": [True, False]})
assert pandas.DataFrame({"a": range(60000)})._repr_mimebundle_() == {}, "a large frame"

from PIL import Image
picture = Image.new("RGB", (1, 1))
picture.save(__import__("io").BytesIO(), "PNG")
assert not shown
picture.save("/tmp/picture.png")
picture.show()
assert shown == [picture, picture]
print("the results are right")
