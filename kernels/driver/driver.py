# A Python kernel for sandboxes without ipykernel. It speaks Jupyter's messages, one JSON object a line: requests on
# descriptor 3, answers on 4. The client reads stdout and stderr as they are; marks in them say where a message belongs.
# Each import delays the first result: asyncio, for one, takes longer than Python's own start.
import _ast, binascii, builtins, importlib.machinery, io, json, linecache, os, re, signal, sys, threading, time, traceback, types

SESSION = os.urandom(16).hex()
LOOP = None  # see loop
main = types.ModuleType("__main__")
main.__builtins__ = builtins


class Channel:
    """The stream to the client, and the request that is being answered."""

    def __init__(self, key):
        self.requests = os.fdopen(self.own(3), "rb")
        self.answers = os.fdopen(self.own(4), "wb")
        os.close(5)  # interrupts: this kernel has signals
        self.outputs = [os.dup(1), os.dup(2)]  # the code may close or redirect its own
        self.mark, self.number = b"\0\1" + key.encode() + b"\2", 0
        self.lock = threading.Lock()
        self.parent = {}
        self.sending = self.interrupted = False  # in the main thread
        os.register_at_fork(after_in_child=self.forked)

    @staticmethod
    def own(fd):
        """Moves a descriptor to another number, and keeps it from child processes."""
        moved = os.dup(fd)
        os.close(fd)
        return moved

    def forked(self):
        """A copy of this process must neither read requests nor answer them. It ends when its code ends."""
        null = os.open(os.devnull, os.O_RDWR)
        for f in (self.requests, self.answers):
            os.dup2(null, f.fileno(), False)
        for fd in self.outputs:
            os.dup2(null, fd, False)
        os.close(null)
        self.lock = threading.Lock()
        self.requests = io.BytesIO()
        FLUSHER.needed.clear()
        FLUSHER.lines(True)

    def place(self):
        """Marks the outputs, and returns the metadata of the message that belongs there."""
        for stream in (sys.stdout, sys.stderr):
            if stream not in FLUSHER.streams:
                try:
                    stream.flush()
                except Exception:
                    pass
        FLUSHER.flush()
        self.number += 1
        streams = 0
        for n, fd in enumerate(self.outputs):
            try:
                os.write(fd, self.mark + b"%08x" % self.number)
                streams |= 1 << n
            except OSError:
                pass
        return {"mark": self.number, "streams": streams}

    def send(self, kind, content, place=None):
        text = message(kind, content, self.parent, place or {})
        inner = threading.current_thread() is threading.main_thread()
        try:
            self.sending = self.sending or inner
            with self.lock:
                self.answers.write(text)
                self.answers.flush()
        finally:
            self.sending = self.sending and not inner
        if inner and self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt


class Output(io.FileIO):
    """A stream of the code. Each line reaches the client at once, in order with the output of child processes. Code that
    writes many lines is faster with a buffer: see Flusher."""

    def __init__(self, fd, flusher):
        super().__init__(fd, "w", closefd=False)
        self.writes, self.flusher = 0, flusher

    def write(self, b):
        self.writes += 1
        if self.writes == 1000:
            self.flusher.needed.set()
        data = memoryview(b)
        while data:
            n = super().write(data)
            if n is None:  # the pipe is full, and does not block
                time.sleep(0.001)
                continue
            data = data[n:]
        return len(b)


class Flusher:
    """Buffers the streams of code that writes many lines, until its end."""

    SPAWNS = {"subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec"}

    def __init__(self):
        self.needed = threading.Event()
        self.streams = []
        for fd in (1, 2):
            buffer = io.BufferedWriter(Output(fd, self), 1 << 16)
            self.streams.append(io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True))
        self.thread = None
        self.hooked = False

    def flush(self):
        for stream in self.streams:
            try:
                stream.flush()
            except Exception:  # the code has closed it
                pass

    def begin(self):
        """Has the next lines reach the client at once."""
        if self.thread is None:
            self.thread = threading.Thread(target=self.run, daemon=True)
            self.thread.start()
        for stream in self.streams:
            stream.buffer.raw.writes = 0
        if self.needed.is_set():
            self.needed.clear()
            self.lines(True)

    def lines(self, wanted):
        for stream in self.streams:
            try:
                stream.reconfigure(line_buffering=wanted)
            except Exception:
                pass

    def run(self):
        while True:
            self.needed.wait()
            if not self.hooked:
                self.hooked = True
                sys.addaudithook(lambda event, args: self.flush() if event in self.SPAWNS and self.needed.is_set() else None)
            self.lines(False)
            while self.needed.is_set():
                time.sleep(0.02)
                self.flush()


def message(kind, content, parent, metadata):
    header = {
        "msg_id": os.urandom(16).hex(), "session": SESSION, "username": "kernel", "msg_type": kind, "version": "5.4",
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    text = json.dumps({"header": header, "parent_header": parent, "metadata": metadata, "content": content}, default=plain)
    return text.encode("utf-8", "surrogatepass") + b"\n"


TEXT_MOST = 1 << 20  # characters of a value's or an error's text
FORM_MOST = 16 << 20  # characters of another form of a value


def cut(text):
    return text if len(text) <= TEXT_MOST else "%s... (%d characters)" % (text[:TEXT_MOST], len(text))


def plain(value):
    try:
        return cut(repr(value))
    except Exception as e:  # the code's own __repr__ failed
        return "<%s: repr failed: %s>" % (type(value).__name__, type(e).__name__)


FORMS = {
    "_repr_html_": "text/html", "_repr_markdown_": "text/markdown", "_repr_latex_": "text/latex",
    "_repr_svg_": "image/svg+xml", "_repr_png_": "image/png", "_repr_jpeg_": "image/jpeg",
    "_repr_json_": "application/json",
}


def bundle(value):
    """The value in all forms that it offers."""
    data = {}
    if "matplotlib.figure" in sys.modules and isinstance(value, sys.modules["matplotlib.figure"].Figure):
        data["image/png"] = png(value)
    if hasattr(type(value), "to_plotly_json") and hasattr(value, "to_json"):
        try:
            data["application/vnd.plotly.v1+json"] = json.loads(value.to_json())
        except Exception:
            pass
    if not isinstance(value, type):
        forms = getattr(value, "_repr_mimebundle_", None)
        if callable(forms):
            try:
                made = forms(include=None, exclude=None)
                data.update(made[0] if isinstance(made, tuple) else made or {})
            except Exception:
                pass
        for method, mime in FORMS.items():
            form = getattr(value, method, None)
            if mime in data or not callable(form):
                continue
            try:
                made = form()
            except Exception:
                continue
            made = made[0] if isinstance(made, tuple) else made
            if made is not None:
                data[mime] = made
    data = sendable(data)
    data.setdefault("text/plain", plain(value))
    return data


def sendable(data):
    """The forms that a message can carry."""
    sent = {}
    for mime, made in data.items():
        if isinstance(made, bytes):
            made = binascii.b2a_base64(made, newline=False).decode()
        try:
            if len(json.dumps(made, allow_nan=False)) <= FORM_MOST:
                sent[str(mime)] = made
        except (TypeError, ValueError, RecursionError):
            pass
    return sent


def png(figure):
    to = io.BytesIO()
    figure.savefig(to, format="png", bbox_inches="tight")
    return to.getvalue()


class Figures:
    """The backend of matplotlib: figures without a screen, shown as outputs."""

    name = "demesne_figures"

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == self.name else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        from matplotlib.backends.backend_agg import FigureCanvasAgg, new_figure_manager, new_figure_manager_given_figure
        module.FigureCanvas = module.FigureCanvasAgg = FigureCanvasAgg
        module.new_figure_manager = new_figure_manager
        module.new_figure_manager_given_figure = new_figure_manager_given_figure
        module.show = lambda *args, **kw: show_figures()
        module.draw_if_interactive = lambda: None


class Plotly:
    """Has plotly's figures show themselves as outputs: plotly would open a browser."""

    name = "plotly.basedatatypes"

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and hasattr(spec.loader, "exec_module"):
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        if hasattr(module, "BaseFigure"):
            module.BaseFigure.show = lambda figure, *args, **kw: display(figure)


def show_figures(value=None):
    """Shows and closes the open figures, but for the code's value: that is shown as such."""
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is None:
        return
    if isinstance(value, sys.modules["matplotlib.figure"].Figure):
        plt.close(value)
    for number in plt.get_fignums():
        figure = plt.figure(number)
        show({"data": bundle(figure), "metadata": {}, "transient": {}})
    plt.close("all")


def show(content, kind="display_data"):
    CHANNEL.send(kind, content, CHANNEL.place())


class Shown:
    """An output that the code can replace."""

    def __init__(self, display_id):
        self.display_id = display_id

    def update(self, value, raw=False):
        data = sendable(value) if raw else bundle(value)
        show({"data": data, "metadata": {}, "transient": {"display_id": self.display_id}}, "update_display_data")


def display(*values, display_id=None, raw=False, update=False, **kw):
    """Shows values as outputs of the code. With a display_id, or True for a new one, it returns what can update them."""
    if display_id is True:
        display_id = os.urandom(16).hex()
    for value in values:
        transient = {"display_id": display_id} if display_id else {}
        data = sendable(value) if raw else bundle(value)
        show({"data": data, "metadata": {}, "transient": transient}, "update_display_data" if update else "display_data")
    if display_id:
        return Shown(display_id)


def clear_output(wait=False):
    """Removes the outputs of the code so far; with wait, when the next one comes."""
    show({"wait": bool(wait)}, "clear_output")


def refuse_input(prompt=""):
    raise RuntimeError("input() is not available here: no one is there to answer. Put the value into the code.")


def compiled(code, name):
    """The code's statements, and its last expression, if it has one that is not followed by a semicolon."""
    try:
        tree = compile(code, name, "exec", _ast.PyCF_ONLY_AST, True)
    except SyntaxError:
        if (with_shell := shell_lines(code)) == code:
            raise
        tree = compile(with_shell, name, "exec", _ast.PyCF_ONLY_AST, True)
    last = None
    if tree.body and isinstance(tree.body[-1], _ast.Expr) and not re.search(r";\s*(#[^\n]*)?\s*$", code):
        last = _ast.Expression(tree.body.pop().value)
    flags = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile(tree, name, "exec", flags, True), last and compile(last, name, "eval", flags, True)


def shell_lines(code):
    """The code with calls in place of notebooks' lines for the shell: !COMMAND, and %pip for pip of this Python."""
    def call(line):
        command = line[3] if line[2] == "!" else sys.executable + " -m pip" + line[3]
        return "%s_exit_code = __import__('subprocess').call(%r, shell=True)" % (line[1], command)
    return re.sub(r"(?m)^([ \t]*)(!|%pip(?=\s))(.*)$", call, code)


CO_COROUTINE = 0x80  # of inspect


def evaluate(code):
    value = eval(code, main.__dict__)
    return evaluate_coroutine(value) if code.co_flags & CO_COROUTINE else value


def loop():
    """The event loop of the code, made when something may need it."""
    global LOOP
    if LOOP is None:
        import asyncio
        LOOP = asyncio.new_event_loop()
        asyncio.set_event_loop(LOOP)
    return LOOP


def evaluate_coroutine(value):
    task = loop().create_task(value)
    try:
        return loop().run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        try:
            loop().run_until_complete(task)
        except BaseException:
            pass
        raise


class Kernel:
    def __init__(self):
        self.count = 0
        self.executing = False
        self.history_kept = []
        self.place = None  # of the reply to the current request
        signal.signal(signal.SIGINT, self.interrupted)

    def interrupted(self, number, frame):
        if self.executing and CHANNEL.sending:
            CHANNEL.interrupted = True
        elif self.executing:
            raise KeyboardInterrupt

    def execute(self, content):
        code, name = content["code"], "<cell %d>" % (self.count + 1)
        if content.get("store_history", True):
            self.count += 1
            self.history_kept = self.history_kept[-999:] + [(0, self.count, code)]
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        own, failed, place = os.getpid(), None, None
        try:
            FLUSHER.begin()
            self.executing = True
            CHANNEL.send("execute_input", {"code": code, "execution_count": self.count})
            if "asyncio" in code or "asyncio" in sys.modules:
                loop()
            statements, last = compiled(code, name)
            evaluate(statements)
            value = evaluate(last) if last else None
            if isinstance(value, types.CoroutineType):
                value = evaluate_coroutine(value)
            data = None if value is None else bundle(value)
            show_figures(value)
            if data is not None:
                main._ = value
                place = CHANNEL.place()
                CHANNEL.send("execute_result", {"data": data, "metadata": {}, "execution_count": self.count}, place)
            self.executing = False
        except BaseException as e:
            self.executing = CHANNEL.interrupted = False
            failed, place = e, None
        if os.getpid() != own:
            self.leave(failed)
        place = place or CHANNEL.place()
        if failed:
            error = self.failure(failed)
            CHANNEL.send("error", error, place)
            return dict(error, status="error", execution_count=self.count)
        self.place = place
        return {"status": "ok", "execution_count": self.count, "payload": [], "user_expressions": {}}

    def leave(self, failed):
        """Ends a copy of the kernel that the code made by a fork."""
        status = 0
        if isinstance(failed, SystemExit) and (failed.code is None or isinstance(failed.code, int)):
            status = failed.code or 0
        elif failed:
            print("\n".join(self.failure(failed)["traceback"]), file=sys.stderr)
            status = 1
        FLUSHER.flush()
        os._exit(status & 255)

    @staticmethod
    def failure(e):
        back = e.__traceback__
        while back and back.tb_frame.f_code.co_filename == OWN:
            back = back.tb_next
        try:
            lines = traceback.format_exception(type(e), e, back)
        except Exception:
            lines = [type(e).__name__]
        try:
            text = str(e)
        except Exception:
            text = ""
        return {"ename": type(e).__name__, "evalue": cut(text), "traceback": [cut(line.rstrip("\n")) for line in lines]}

    def info(self, content):
        return {
            "status": "ok", "protocol_version": "5.4", "implementation": "demesne", "implementation_version": "1",
            "banner": "Python " + sys.version.split()[0], "help_links": [],
            "language_info": {
                "name": "python", "version": sys.version.split()[0], "mimetype": "text/x-python", "file_extension": ".py",
            },
        }

    def complete(self, content):
        import rlcompleter
        code, at = content["code"], content["cursor_pos"]
        word = re.search(r"[\w.]*$", code[:at]).group()
        found, find = [], rlcompleter.Completer(main.__dict__).complete
        for n in range(200):
            one = find(word, n)
            if one is None:
                break
            found.append(one.rstrip("("))
        return {"status": "ok", "matches": found, "cursor_start": at - len(word), "cursor_end": at, "metadata": {}}

    def is_complete(self, content):
        import codeop
        try:
            done = codeop.compile_command(shell_lines(content["code"]), symbol="exec") is not None
        except (SyntaxError, ValueError, OverflowError):
            return {"status": "invalid"}
        return {"status": "complete"} if done else {"status": "incomplete", "indent": ""}

    def inspect(self, content):
        name = re.search(r"[\w.]*$", content["code"][:content["cursor_pos"]]).group()
        try:
            value = eval(name, main.__dict__)
        except Exception:
            return {"status": "ok", "found": False, "data": {}, "metadata": {}}
        from inspect import getdoc
        text = plain(value) + "\n\n" + (getdoc(value) or "")
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}

    def history(self, content):
        kept = self.history_kept
        kind = content.get("hist_access_type", "tail")
        if kind == "range":
            kept = [h for h in kept if content.get("start", 0) <= h[1] < (content.get("stop") or self.count + 1)]
        elif kind == "search":
            import fnmatch
            kept = [h for h in kept if fnmatch.fnmatch(h[2], content.get("pattern") or "*")]
        if kind != "range" and content.get("n"):
            kept = kept[-content["n"]:]
        return {"status": "ok", "history": kept}

    def serve(self):
        answers = {
            "execute_request": self.execute, "kernel_info_request": self.info, "complete_request": self.complete,
            "is_complete_request": self.is_complete, "inspect_request": self.inspect, "history_request": self.history,
            "comm_info_request": lambda content: {"status": "ok", "comms": {}},
        }
        while True:
            line = CHANNEL.requests.readline()
            if not line:
                return
            request = json.loads(line)
            CHANNEL.parent = request["header"]
            kind = CHANNEL.parent["msg_type"]
            CHANNEL.send("status", {"execution_state": "busy"}, CHANNEL.place() if kind == "execute_request" else None)
            if kind == "shutdown_request":
                CHANNEL.send("shutdown_reply", {"status": "ok", "restart": False})
                return
            self.place = None
            if kind in answers:
                content = answers[kind](request["content"])
                CHANNEL.send(kind.replace("_request", "_reply"), content, self.place)
            CHANNEL.send("status", {"execution_state": "idle"})


CHANNEL = Channel(sys.argv.pop())
FLUSHER = Flusher()
sys.stdout, sys.stderr = FLUSHER.streams
sys.stdin = open(os.devnull)
sys.argv = [""]
OWN = compiled.__code__.co_filename
os.environ.setdefault("MPLBACKEND", "module://" + Figures.name)
sys.meta_path.append(Figures())
sys.meta_path.insert(0, Plotly())
sys.modules["__main__"] = main
sys.path.insert(0, "")
builtins.input = refuse_input
builtins.display = display
builtins.clear_output = clear_output
Kernel().serve()
os._exit(0)
