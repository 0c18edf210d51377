# Adds to the results of Python as E2B's kernels do: the data of matplotlib's charts (e2b/chart), that of pandas' frames
# (e2b/data), and images that PIL shows or saves. A kernel executes this before any code. It imports nothing but what every
# Python has loaded, and changes a library when the code imports it.
def _demesne_results():
    import importlib.machinery
    import sys

    points_most = 50000  # of a chart, and values of a frame; larger ones have no data
    scales = {"linear", "log", "symlog", "logit", "function", "functionlog", "asinh"}

    class Hook:
        """Calls a function with a module after its import."""

        loader = None

        def __init__(self, name, change):
            self.name, self.change = name, change

        def find_spec(self, name, path=None, target=None):
            if name != self.name:
                return None
            sys.meta_path.remove(self)
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec and hasattr(spec.loader, "exec_module"):
                self.loader, spec.loader = spec.loader, self
            return spec

        def __getattr__(self, name):  # of the module's own loader
            if self.loader is None:
                raise AttributeError(name)
            return getattr(self.loader, name)

        def create_module(self, spec):
            return self.loader.create_module(spec)

        def exec_module(self, module):
            self.loader.exec_module(module)
            try:
                self.change(module)
            except Exception:
                pass

    def quiet(f):
        """Has f return None where it fails: a result is shown without its data then."""

        def called(*args):
            try:
                return f(*args)
            except Exception:
                return None

        return called

    def finite(value):
        value = float(value)
        return value if value - value == 0 else None

    def shown(label):
        """A label without those that matplotlib makes up."""
        label = str(label)
        return "" if label.startswith("_") else label

    class Axis:
        def __init__(self, axis):
            self.axis = axis
            get = getattr(axis, "get_converter", None)
            name = type(get() if get else axis.converter).__name__
            self.scale = axis.get_scale()
            self.names = {}
            if "Date" in name or "Period" in name:
                self.scale = "datetime"
            elif "Category" in name:
                self.scale = "categorical"
                self.names = {float(at): word for word, at in axis.units._mapping.items()}
            elif self.scale not in scales:
                self.scale = "unknown"

        def value(self, at):
            if self.scale == "datetime":
                from matplotlib.dates import num2date
                return num2date(at).isoformat()
            return self.names.get(float(at)) or finite(at)

        def values(self, data):
            """Values of an artist in their order, which it may keep as words or dates."""
            return [self.value(at) for at in self.axis.convert_units(data)]

        def near(self, at):
            """The text of the nearest tick, or the place itself if ticks are numbers or dates."""
            value = self.value(at) if self.scale == "datetime" else "%g" % at
            if self.scale == "datetime" or type(self.axis.get_major_formatter()).__name__ in ("ScalarFormatter", "LogFormatterSciNotation"):
                return value
            words = [(abs(tick - at), label.get_text()) for tick, label in zip(self.axis.get_ticklocs(), self.axis.get_ticklabels())]
            return min((w for w in words if w[1]), default=(0, value))[1]

        def label(self):
            """The label, and the unit that ends it in parentheses."""
            label = self.axis.get_label_text().strip()
            unit = label[label.rfind("(") + 1:-1] if label.endswith(")") and "(" in label else ""
            return label or None, unit or None

        def ticks(self, name):
            at = [float(t) for t in self.axis.get_ticklocs()]
            return {
                name + "_ticks": [self.value(t) if self.scale == "datetime" or t in self.names else finite(t) for t in at],
                name + "_tick_labels": [t.get_text() for t in self.axis.get_ticklabels()],
                name + "_scale": self.scale,
            }

    def bars(ax, x, y):
        from matplotlib.container import BarContainer
        for bar in ax.containers:
            if not isinstance(bar, BarContainer):
                continue
            for patch in bar.patches:
                if getattr(bar, "orientation", "vertical") == "horizontal":
                    at, value = y.near(patch.get_y() + patch.get_height() / 2), patch.get_width()
                else:
                    at, value = x.near(patch.get_x() + patch.get_width() / 2), patch.get_height()
                yield {"label": at, "value": finite(value), "group": shown(bar.get_label())}

    def slices(ax):
        from matplotlib.patches import Wedge
        for wedge in ax.patches:
            if isinstance(wedge, Wedge):  # matplotlib computes angles in 32 bits
                angle = round(float(abs(wedge.theta2 - wedge.theta1)), 3)
                yield {"label": shown(wedge.get_label()), "angle": angle, "radius": finite(wedge.r)}

    def boxes(ax):
        for stats in getattr(ax, "_demesne_boxes", ()):
            places = (("min", "whislo"), ("first_quartile", "q1"), ("median", "med"), ("third_quartile", "q3"), ("max", "whishi"))
            box = {name: finite(stats[key]) for name, key in places}
            yield dict(box, label=str(stats.get("label", "")), outliers=[finite(v) for v in stats.get("fliers", ())])

    def scattered(ax, x, y):
        from matplotlib.collections import PathCollection
        for c in ax.collections:
            if isinstance(c, PathCollection):
                at = c.get_offsets()
                yield {"label": shown(c.get_label()), "points": list(zip(x.values(at[:, 0]), y.values(at[:, 1])))}

    def drawn(ax, x, y):
        for line in ax.get_lines():
            if line.get_transform().contains_branch(ax.transData):  # others, such as marks across the axes, are not data
                points = zip(x.values(line.get_xdata(orig=False)), y.values(line.get_ydata(orig=False)))
                yield {"label": shown(line.get_label()), "points": list(points)}

    def size(ax):
        lines = sum(len(line.get_xdata(orig=False)) for line in ax.get_lines())
        return lines + sum(len(c.get_offsets()) for c in ax.collections) + len(ax.patches)

    def chart(ax):
        title = ax.get_title() or None
        x, y = Axis(ax.xaxis), Axis(ax.yaxis)
        (x_label, x_unit), (y_label, y_unit) = x.label(), y.label()
        labels = {"x_label": x_label, "y_label": y_label, "x_unit": x_unit, "y_unit": y_unit}
        found = (
            ("pie", lambda: slices(ax)), ("box_and_whisker", lambda: boxes(ax)), ("bar", lambda: bars(ax, x, y)),
            ("scatter", lambda: scattered(ax, x, y)), ("line", lambda: drawn(ax, x, y)),
        )
        for kind, find in found:
            elements = list(find())
            if elements and kind == "pie":
                return {"type": kind, "title": title, "elements": elements}
            if elements and kind in ("scatter", "line"):
                return dict(labels, type=kind, title=title, elements=elements, **x.ticks("x"), **y.ticks("y"))
            if elements:
                return dict(labels, type=kind, title=title, elements=elements)
        return {"type": "unknown", "title": title, "elements": []}

    @quiet
    def charts(figure, include=None, exclude=None):
        axes = [ax for ax in figure.get_axes() if ax.get_visible() and not hasattr(ax, "_colorbar") and hasattr(ax, "xaxis")]
        if not axes or sum(size(ax) for ax in axes) > points_most:
            return None
        title = figure.get_suptitle() if hasattr(figure, "get_suptitle") else getattr(figure._suptitle, "get_text", str)()
        made = [chart(ax) for ax in axes]
        whole = made[0] if len(made) == 1 else {"type": "superchart", "title": None, "elements": made}
        return {"e2b/chart": dict(whole, title=whole["title"] or title or None)}

    def figures(module):
        module.Figure._repr_mimebundle_ = lambda figure, include=None, exclude=None: charts(figure) or {}

    def boxed(module):
        own = module.Axes.bxp

        def bxp(ax, bxpstats, *args, **options):
            stats = list(bxpstats)
            ax._demesne_boxes = getattr(ax, "_demesne_boxes", []) + stats
            return own(ax, stats, *args, **options)

        module.Axes.bxp = bxp

    def plain(value):
        if value is None or isinstance(value, (str, bool, int)):
            return value
        if hasattr(value, "isoformat"):
            return value.isoformat() if value == value else None
        try:
            value = value.item() if hasattr(value, "item") else value
            return value if isinstance(value, (bool, int, str)) else finite(value)
        except Exception:
            return str(value)

    @quiet
    def columns(frame):
        if frame.size > points_most:
            return None
        return {"e2b/data": {str(name): [plain(v) for v in values] for name, values in frame.items()}}

    def frames(module):
        module.DataFrame._repr_mimebundle_ = lambda frame, include=None, exclude=None: columns(frame) or {}

    def pictures(module):
        import builtins
        save, image = module.Image.save, module.Image

        def saved(picture, to, *args, **options):
            save(picture, to, *args, **options)
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if not hasattr(to, "write") and not caller.startswith("matplotlib."):  # a form for a message is not a file
                show(picture)

        def show(picture, *args, **options):
            getattr(builtins, "display", print)(picture)

        image.save, image.show = saved, show

    changes = {"matplotlib.figure": figures, "matplotlib.axes._axes": boxed, "pandas.core.frame": frames, "PIL.Image": pictures}
    for name, change in changes.items():
        if name in sys.modules:
            quiet(change)(sys.modules[name])
        else:
            sys.meta_path.insert(0, Hook(name, change))


_demesne_results()
del _demesne_results
