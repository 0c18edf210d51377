package integration

import (
	"crypto/tls"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// referenceStart is the line of docs/reference/cli.md after which the generated text begins.
const referenceStart = "<!-- made by make docs: the rest is the output of demesne help --markdown -->\n"

func document(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile("../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestDocsReference checks that docs/reference/cli.md is the output of demesne help --markdown.
func TestDocsReference(t *testing.T) {
	b := newBox(t)
	_, got, ok := strings.Cut(document(t, "docs/reference/cli.md"), referenceStart)
	if !ok {
		t.Fatal("docs/reference/cli.md has no marked reference")
	}
	if want := b.demesne("help", "--markdown").stdout; strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Error("docs/reference/cli.md is not what demesne help --markdown says: make docs")
	}
}

// documents lists README.md and every document under docs.
func documents(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md"}
	err := filepath.WalkDir("../docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			all = append(all, strings.TrimPrefix(path, "../"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// online lists the documents whose transcripts reach servers or a registry.
var online = []string{"docs/tutorial.md", "docs/guide/network.md", "docs/guide/secrets.md", "docs/guide/web.md"}

// slurmGuide needs a cluster: TestSlurm runs its transcripts. TestKubernetes runs kubernetesGuide, and TestRay rayGuide.
const slurmGuide = "docs/guide/clusters/slurm.md"

// TestDocsTranscripts runs the console blocks of README.md and of each document under docs. See transcript.
func TestDocsTranscripts(t *testing.T) {
	total := 0
	for _, name := range documents(t) {
		steps := stepsOf(document(t, name))
		if total += len(steps); len(steps) > 0 && !slices.Contains(online, name) && name != slurmGuide && name != kubernetesGuide && name != rayGuide {
			t.Run(name, func(t *testing.T) {
				needsPrograms(t, steps)
				b, _ := newAgentBox(t, documented)
				transcript(b, name, steps)
			})
		}
	}
	if total < 100 {
		t.Errorf("the documents have %d commands in transcripts; are they gone?", total)
	}
}

// needsPrograms skips the test of a document on a machine that lacks a program of its commands.
func needsPrograms(t *testing.T, steps []step) {
	t.Helper()
	for word, name := range map[string]string{"curl": "curl", "git": "git", "python3": "python3", "node": "node", "ssh": "ssh", "rsync": "rsync", "nbconvert": "jupyter-nbconvert", "docker": "docker"} {
		used := regexp.MustCompile(`\b` + word + `\b`)
		if slices.ContainsFunc(steps, func(s step) bool { return used.MatchString(s.command) }) {
			program(t, name)
		}
	}
}

// documented is the model of the agents in the documents.
func documented(r fixture.ModelRequest) fixture.Answer {
	if strings.Contains(r.Prompt, "French") {
		return fixture.Steps(shell("sed 's/dear reader/cher lecteur/' /in/letter.txt > /out/letter.fr.txt"), fixture.Answer{Text: "The translation is in /out/letter.fr.txt."})(r)
	}
	return fixture.Steps(shell("wc -l < /in/data.txt > /out/count"), fixture.Answer{Text: "data.txt has two lines."})(r)
}

// TestDocsOnline runs the console blocks of the documents that reach servers, on the simulated internet.
func TestDocsOnline(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "curl")
		n.examples()
		g := n.hub()
		g.push("docker/library/alpine:latest", v1.Config{Env: []string{"PATH=/bin"}}, g.busybox(),
			[]fixture.Entry{fixture.Dir("etc"), fixture.File("etc/os-release", "NAME=\"Alpine Linux\"\n")})
		for _, name := range online {
			b, _ := newAgentBox(t, documented)
			b.extra = append(b.extra, g.extra...)
			transcript(b, name, stepsOf(document(t, name)))
		}
	})
}

// examples starts the servers that the documents name. Each answers with its name, and /user also with the
// credential that it received.
func (n *internet) examples() {
	n.Helper()
	cert := n.trusted("127.0.0.1 localhost\n8.5.5.5 example.com api.example.com\n8.6.6.6 www.example.org\n")
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/user" {
			fmt.Fprintf(w, "you sent: %s\n", r.Header.Get("Authorization"))
			return
		}
		n.answer(w, r)
	})}
	n.Cleanup(func() { web.Close() })
	for _, at := range []string{"8.5.5.5:443", "8.6.6.6:443"} {
		go web.Serve(tls.NewListener(n.listen(at), &tls.Config{Certificates: []tls.Certificate{cert}}))
	}
}

// hub starts a registry that takes the place of Docker Hub.
func (n *internet) hub() *gallery {
	n.Helper()
	reg, err := fixture.NewRegistry(n.dir+"/registry", fixture.Options{})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(reg.Close)
	n.extra = append(n.extra, "CONTAINERS_REGISTRIES_CONF="+n.file("registries.conf", reg.Conf(), 0o644))
	return &gallery{box: n.box, reg: reg}
}

// step is one command of a transcript, and the output that the document shows for it.
type step struct{ command, want string }

// stepsOf returns the commands in a document's console blocks. A command is a line after "$ ", and continues on the
// next line after a backslash. The lines of a here-document follow ">".
func stepsOf(text string) (all []step) {
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for _, lines := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(lines, "\n")
			for strings.HasSuffix(command, "\\") {
				var more string
				more, want, _ = strings.Cut(want, "\n")
				command += "\n" + more
			}
			for here := strings.Contains(command, "<<"); here && strings.HasPrefix(want, ">"); {
				var more string
				more, want, _ = strings.Cut(want, "\n")
				command += "\n" + strings.TrimPrefix(strings.TrimPrefix(more, ">"), " ")
			}
			all = append(all, step{command, want})
		}
	}
	return all
}

// transcript runs the commands of a document as written, all in one shell. Each must print the text that the
// document shows. "…" matches any text.
func transcript(b *box, name string, steps []step) {
	b.Helper()
	b.keepsJobs()
	said := b.mkdir("said")
	var script strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&script, "exec > %s/%d 2>&1 < /dev/null\n%s\n", said, i, s.command)
	}
	cmd := b.command("/bin/bash", b.file("transcript", script.String(), 0o644))
	cmd.Dir = b.mkdir("work")
	b.copyDir("../python/src/demesne", "src/demesne")
	cmd.Env = append(cmd.Env, "PYTHONPATH="+b.dir+"/src", "PATH="+bin+":"+b.dir+"/prog:"+os.Getenv("PATH"), "DEMESNE_OUTPUT_ROOT="+b.dir+"/outputs",
		"JUPYTER_DATA_DIR="+b.mkdir("jupyter"), "JUPYTER_CONFIG_DIR="+b.mkdir("jupyter/config"), "IPYTHONDIR="+b.mkdir("ipython"))
	b.finish(cmd)
	for i, s := range steps {
		got, err := os.ReadFile(fmt.Sprintf("%s/%d", said, i))
		if err != nil || !matches(string(got), s.want) {
			b.Errorf("$ %s\nsays:\n%s\nand %s says:\n%s", s.command, got, name, s.want)
		}
	}
	b.demesne("ls", "-q")
}

// matches reports whether text matches a pattern in which "…" stands for any text.
func matches(text, pattern string) bool {
	parts := strings.Split(strings.TrimSpace(pattern), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	ok, _ := regexp.MatchString("(?s)^"+strings.Join(parts, ".*")+"$", strings.TrimSpace(text))
	return ok
}

// TestDocsHelp checks that --help works for every verb, prints to stdout and shows examples. It also checks the
// shell completions.
func TestDocsHelp(t *testing.T) {
	b := newBox(t)
	for _, verb := range []string{"run", "create", "exec", "ls", "inspect", "stop", "rm", "attach", "check", "selftest", "completion", "version", "manifest", "help", "pull", "images", "rmi", "import", "export", "save", "gc", "cp", "fork", "snapshot", "diff", "commit", "jobs", "wait", "logs", "cancel", "egress", "mcp", "agent", "research", "kernel", "notebook", "repl"} {
		r := b.demesne(verb, "--help")
		if r.code != 0 || !strings.HasPrefix(r.stdout, "Usage: demesne "+verb) || !strings.Contains(r.stdout, "Examples:") || r.stderr != "" {
			t.Errorf("demesne %s --help: %+v", verb, r)
		}
		if again := b.demesne("help", verb); again.stdout != r.stdout {
			t.Errorf("demesne help %s says something else", verb)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		r := b.demesne("completion", shell)
		if r.code != 0 || !strings.Contains(r.stdout, "demesne") {
			t.Errorf("completion %s: %+v", shell, r)
		}
	}
	check := b.command("/bin/bash", "-n")
	check.Stdin = strings.NewReader(b.demesne("completion", "bash").stdout)
	if r := b.finish(check); r.code != 0 {
		t.Errorf("the completion script: %s", r.stderr)
	}
	if r := b.demesne("no-such-verb"); r.code != 2 || !strings.HasPrefix(r.stderr, `demesne: unknown command "no-such-verb"`) {
		t.Errorf("an unknown verb: %+v", r)
	}
}
