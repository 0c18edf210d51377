package containerfile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

func plan(t *testing.T, text string, o Options) *Plan {
	t.Helper()
	f, err := Parse("Containerfile", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// steps applies all instructions of a stage.
func steps(t *testing.T, p *Plan, s *Stage, config string) (*State, []*Step) {
	t.Helper()
	st, triggers, err := p.Begin(s, []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	var all []*Step
	for _, c := range append(triggers, s.Commands...) {
		step, err := st.Apply(c)
		if err != nil {
			t.Fatal(err)
		}
		if step != nil {
			all = append(all, step)
		}
	}
	return st, all
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "Containerfile: file with no instructions"},
		{"# only a comment\n", "Containerfile:1: file with no instructions"},
		{"ARG A=1\n", "Containerfile: no FROM instruction"},
		{"FROM a\nRUNN x\n", "Containerfile:2: unknown instruction: RUNN"},
		{"RUN x\nFROM a\n", "Containerfile:1: no build stage in current context"},
		{"FROM a\n\nCOPY x\n", "Containerfile:3: COPY requires at least two arguments"},
		{"FROM a\nRUN --mount=type=strange x\n", "Containerfile:2: unsupported mount type"},
		{"FROM a\nRUN <<EOF\nx\n", "Containerfile:2: unterminated heredoc"},
		{"FROM a\nCOPY --link=maybe x y\n", "Containerfile:2: "},
		{"FROM a\n\x00", "Containerfile:2: not text"},
		{"FROM $NONE\n", "Containerfile:1: FROM $NONE: the name is empty"},
		{"FROM a AS x\nCOPY --from=y . .\nFROM x AS y\n", `Containerfile:3: stage "y" needs itself`},
		{"FROM a AS x\nCOPY --from=0 a b\n", `Containerfile:1: stage "x" needs itself`},
		{"FROM a\nRUN --network=host x\n", "Containerfile:2: RUN --network=host: not supported"},
		{"FROM a\nRUN --security=insecure x\n", "Containerfile:2: RUN --security=insecure: not supported"},
		{"FROM a\nEXPOSE 80:80\n", "Containerfile:2: EXPOSE 80:80: a port of the host"},
		{"FROM a\nEXPOSE 99999\n", `Containerfile:2: EXPOSE 99999: port "99999"`},
		{"FROM a\nCOPY a b /file\n", "Containerfile:2: "},
		{"FROM a\nADD --checksum=sha256:aa file /\n", "Containerfile:2: ADD --checksum: needs one source"},
		{"FROM a\nADD --checksum=sha256:aa https://a.test/b /\n", "Containerfile:2: ADD --checksum=sha256:aa: not sha256: and 64"},
		{"FROM a\nADD --checksum=main https://a.test/b.git /\n", "Containerfile:2: ADD --checksum=main: not a commit"},
		{"FROM a\nADD --keep-git-dir https://a.test/b /\n", "Containerfile:2: ADD --keep-git-dir: no source is a git repository"},
		{"FROM a\nADD git@a.test:b.git /\n", "Containerfile:2: ADD git@a.test:b.git: not supported over ssh"},
		{"FROM a\nADD https://u:p@a.test/b /\n", "Containerfile:2: ADD https://u:p@a.test/b: a password in a URL"},
		{"FROM a\nADD https://a.test/ /d/\n", "Containerfile:2: ADD https://a.test/: the URL has no file name"},
		{"FROM a\nADD https:///x /d/\n", "Containerfile:2: ADD https:///x: the URL has no host"},
		{"FROM a\nADD https://a.test/b.git#--upload-pack=x /d/\n", "Containerfile:2: ADD https://a.test/b.git#--upload-pack=x: \"--upload-pack=x\": not a branch"},
		{"FROM a\nADD https://a.test/b.git#main:.git /d/\n", "Containerfile:2: ADD https://a.test/b.git#main:.git: \".git\": not a directory"},
		{"FROM a\n" + strings.Repeat("ENV A=1\n", maxSteps), "Containerfile:4097: more than 4096 instructions"},
		{"FROM a\n" + strings.Repeat("#", MaxFile), "Containerfile: larger than 1048576 bytes"},
		{"FROM a\nENV A=\"${B:?none}\"\n", "Containerfile:2: "},
	} {
		t.Run(strings.ReplaceAll(c.text[:min(len(c.text), 30)], "\n", "|"), func(t *testing.T) {
			err := evaluate(c.text)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// evaluate applies everything in a file, as a build would.
func evaluate(text string) error {
	f, err := Parse("Containerfile", strings.NewReader(text))
	if err != nil {
		return err
	}
	p, err := f.Plan(Options{})
	if err != nil {
		return err
	}
	for _, s := range p.Stages {
		st, _, err := p.Begin(s, nil)
		if err != nil {
			return err
		}
		for _, c := range s.Commands {
			if _, err := st.Apply(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestStages(t *testing.T) {
	const text = `ARG BASE=debian
ARG TAG=${BASE}-12
FROM ${BASE}:$TAG AS base
FROM base AS build
FROM --platform=$BUILDPLATFORM other AS unneeded
FROM scratch AS data
FROM base
COPY --from=build /a /a
COPY --from=3 /b /b
COPY --from=registry.example/tools:1 /c /c
RUN --mount=type=bind,from=data,target=/m true
`
	names := func(p *Plan) string {
		var all []string
		for _, s := range p.Stages {
			all = append(all, s.Name)
		}
		return strings.Join(all, " ")
	}
	p := plan(t, text, Options{Args: map[string]string{"BASE": "alpine", "TYPO": "1", "HTTP_PROXY": "x"}})
	if got := names(p); got != "base build data 4" {
		t.Errorf("stages: %s", got)
	}
	if got := p.Stages[0].Image; got != "alpine:alpine-12" {
		t.Errorf("base: %s", got)
	}
	last := p.Stages[3]
	if last.From("build") != p.Stages[1] || last.From("3") != p.Stages[2] || last.From("registry.example/tools:1") != nil {
		t.Error("a --from leads elsewhere")
	}
	if !reflect.DeepEqual(p.Unused, []string{"TYPO"}) {
		t.Errorf("unused: %q", p.Unused)
	}
	if got := names(plan(t, text, Options{Target: "unneeded"})); got != "unneeded" {
		t.Errorf("stages of a target: %s", got)
	}
	f, _ := Parse("F", strings.NewReader(text))
	if _, err := f.Plan(Options{Target: "none"}); err == nil || !strings.Contains(err.Error(), `no stage "none" (stages: base, build, unneeded, data, 4)`) {
		t.Errorf("unknown target: %v", err)
	}
}

func TestRunSteps(t *testing.T) {
	p := plan(t, `FROM x
ARG GREETING=hello
ARG NONE
ENV PATH=/opt/bin:$PATH NAME="a b"
WORKDIR app
WORKDIR sub
RUN echo $GREETING \
    && true
RUN ["a", "b c"]
SHELL ["bash", "-ec"]
USER 1000:5
RUN --network=none --mount=type=cache,target=/c,id=$GREETING x
RUN <<EOF
one
two
EOF
RUN <<SCRIPT
#!/usr/bin/python3
print(1)
SCRIPT
RUN python3 <<A && cat <<B
a
A
b
B
`, Options{})
	st, all := steps(t, p, p.Stages[0], `{"config":{"Env":["PATH=/usr/bin"],"WorkingDir":"/srv"}}`)
	var got []string
	for _, s := range all {
		if s.Run == nil {
			got = append(got, fmt.Sprintf("%d copy %s", s.Line, s.Copy.Dest))
			continue
		}
		got = append(got, fmt.Sprintf("%d %q in %s as %q %s", s.Line, s.Run.Argv, s.Run.Dir, s.Run.User, s.Run.Network))
	}
	want := []string{
		`5 copy /srv/app/`, `6 copy /srv/app/sub/`,
		`7 ["/bin/sh" "-c" "echo $GREETING     && true"] in /srv/app/sub as "" default`,
		`9 ["a" "b c"] in /srv/app/sub as "" default`,
		`12 ["bash" "-ec" "x"] in /srv/app/sub as "1000:5" none`,
		`13 ["bash" "-ec" "one\ntwo\n"] in /srv/app/sub as "1000:5" default`,
		`17 ["/run/demesne-build-script"] in /srv/app/sub as "1000:5" default`,
		`21 ["bash" "-ec" "python3 <<A && cat <<B\na\nA\nb\nB"] in /srv/app/sub as "1000:5" default`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	run := all[4].Run
	if want := []string{"PATH=/opt/bin:/usr/bin", "NAME=a b", "GREETING=hello"}; !reflect.DeepEqual(run.Env, want) {
		t.Errorf("environment: %q", run.Env)
	}
	if len(run.Mounts) != 1 || run.Mounts[0].CacheID != "hello" || run.Mounts[0].Type != instructions.MountTypeCache {
		t.Errorf("mounts: %+v", run.Mounts[0])
	}
	if string(all[6].Run.Script) != "#!/usr/bin/python3\nprint(1)\n" {
		t.Errorf("script: %q", all[6].Run.Script)
	}
	if all[2].Text != "RUN echo $GREETING && true" || st.Config.User != "1000:5" {
		t.Errorf("text %q, user %q", all[2].Text, st.Config.User)
	}
}

func TestCopySteps(t *testing.T) {
	p := plan(t, `FROM x
ARG V=1
WORKDIR /w
COPY a$V b /dst/
COPY --chown=app:$V --chmod=0755 --link --parents --exclude=*.o ./*.c rel
COPY . .
ADD file.tgz /
COPY <<one <<"two" /d/
v=$V
one
v=$V
two
`, Options{})
	_, all := steps(t, p, p.Stages[0], "")
	var got []string
	for _, s := range all[1:] {
		c := s.Copy
		got = append(got, fmt.Sprintf("%q %v → %s %s %s %t %t %q %t", c.Sources, c.Contents, c.Dest, c.Chown, c.Chmod, c.Link, c.Parents, c.Exclude, c.Add))
	}
	want := []string{
		`["a1" "b"] [] → /dst/   false false [] false`,
		`["./*.c"] [] → /w/rel app:1 0755 true true ["*.o"] false`,
		`["."] [] → /w/   false false [] false`,
		`["file.tgz"] [] → /   false false [] true`,
		"[] [{one v=1\n true} {two v=$V\n false}] → /d/   false false [] false",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRemotes(t *testing.T) {
	p := plan(t, `FROM x
ADD --keep-git-dir --checksum=0123abc https://a.test/r.git#v1:sub/../dir /r
ADD https://a.test/d/f.tgz?x=1#part local git://a.test/r /d/
`, Options{})
	_, all := steps(t, p, p.Stages[0], "")
	var got []string
	for _, s := range all {
		for _, r := range s.Copy.Remotes {
			got = append(got, fmt.Sprintf("%q %+v", s.Copy.Sources, *r))
		}
	}
	want := []string{
		`[] {URL:https://a.test/r.git Name:r.git Checksum:0123abc Git:true Ref:v1 Subdir:dir KeepGit:true}`,
		`["local"] {URL:https://a.test/d/f.tgz?x=1 Name:f.tgz Checksum: Git:false Ref: Subdir: KeepGit:false}`,
		`["local"] {URL:git://a.test/r Name:r Checksum: Git:true Ref: Subdir: KeepGit:false}`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestConfiguration(t *testing.T) {
	p := plan(t, `FROM x
LABEL a=1 b="two words"
ENTRYPOINT exec app
CMD ["--flag"]
EXPOSE 80 53/udp 8000-8002
VOLUME /data /log
STOPSIGNAL SIGINT
HEALTHCHECK --interval=5s CMD curl localhost
ONBUILD RUN make
MAINTAINER a name
`, Options{})
	st, all := steps(t, p, p.Stages[0], `{"config":{"Cmd":["old"],"OnBuild":["RUN from base","COPY . /src"]}}`)
	text, _ := json.Marshal(st.Config)
	want := `{"ExposedPorts":{"53/udp":{},"80/tcp":{},"8000/tcp":{},"8001/tcp":{},"8002/tcp":{}},"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],"Entrypoint":["/bin/sh","-c","exec app"],"Cmd":["--flag"],"Volumes":{"/data":{},"/log":{}},"Labels":{"a":"1","b":"two words"},"StopSignal":"SIGINT","Healthcheck":{"Test":["CMD-SHELL","curl localhost"],"Interval":5000000000},"OnBuild":["RUN make"]}`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if len(all) != 2 || all[0].Run == nil || all[1].Copy == nil {
		t.Errorf("ONBUILD of the base: %+v", all)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"FROM a\nRUN x", "FROM a\nCOPY --from=0 a b", "FROM a\nRUN <<E\nE", "ARG A=${A:-b}\nFROM $A", "# escape=`\nFROM a\nEXPOSE 1-65535", "FROM a\nENV A=x\nENV B=${A//?/${A%x}}", "FROM a\nONBUILD ADD a b", "FROM a\nCOPY <<-'E' /b\n\t$A\n\tE"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		began := time.Now()
		evaluate(text)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
