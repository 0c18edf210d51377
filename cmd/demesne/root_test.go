package main

import (
	"slices"
	"strings"
	"testing"

	"demesne/images"
	"demesne/runner"
)

func rootOf(t *testing.T, name string, o *options) *root {
	t.Helper()
	var err error
	if name != "" {
		if o.image, err = images.Parse(name); err != nil {
			t.Fatal(err)
		}
	}
	r, err := (&app{env: func(string) (string, bool) { return "", false }}).newRoot(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What runs: flags over the image, the image over nothing.
func TestRootArgv(t *testing.T) {
	shell, sh := "text", []string{"sh"}
	c := images.Config{Entrypoint: []string{"entry", "e"}, Cmd: []string{"cmd"}}
	for _, k := range []struct {
		image string
		found *images.Image
		o     options
		args  string
		want  string
		why   string
	}{
		{"", nil, options{}, "ls -l", "ls -l", ""},
		{"", nil, options{}, "", "", "no command given"},
		{"host", nil, options{entrypoint: &sh}, "-l", "sh -l", ""},
		{"host", nil, options{shell: &shell}, "a", "/bin/sh -c text a", ""},
		{"dir:/x", nil, options{}, "ls", "ls", ""},
		{"dir:/x", nil, options{}, "", "", "no command given"},
		{"python", nil, options{}, "", "", ""}, // not found yet: not known yet
		{"python", nil, options{shell: &shell}, "", "/bin/sh -c text", ""},
		{"python", nil, options{shell: &shell, entrypoint: &sh}, "", "", "both"},
		{"python", &images.Image{Config: c}, options{}, "", "entry e cmd", ""},
		{"python", &images.Image{Config: c}, options{}, "mine", "entry e mine", ""},
		{"python", &images.Image{Config: c}, options{entrypoint: &sh}, "", "sh", ""},
		{"python", &images.Image{Config: c}, options{entrypoint: &[]string{}}, "", "", "no command"},
		{"python", &images.Image{Config: c}, options{entrypoint: &[]string{}}, "a b", "a b", ""},
		{"python", &images.Image{}, options{}, "", "", "no command"},
	} {
		r := rootOf(t, k.image, &k.o)
		r.image = k.found
		argv, err := r.argv(strings.Fields(k.args))
		if got := strings.Join(argv, " "); got != k.want || (err == nil) != (k.why == "") || err != nil && !strings.Contains(err.Error(), k.why) {
			t.Errorf("%s %q: %q, %v; want %q, %s", k.image, k.args, got, err, k.want, k.why)
		}
	}
}

// What the runner is told of an image.
func TestRootFill(t *testing.T) {
	store, err := images.Open(t.TempDir() + "/store")
	if err != nil {
		t.Fatal(err)
	}
	r := rootOf(t, "python", &options{})
	r.client = &images.Client{Store: store}
	r.image = &images.Image{
		Digest: digestNamed("a"),
		Config: images.Config{Env: []string{"A=1", "B=", "NOVALUE", "=x", "N=\x00"}, WorkingDir: "../srv/./app", User: "me"},
		Layers: []images.Layer{{DiffID: digestNamed("1")}, {DiffID: digestNamed("2")}},
	}
	var spec runner.Spec
	r.fill(&spec)
	f := spec.Rootfs
	switch {
	case spec.Image != "python", f.Digest != digestNamed("a").String(), f.Store != store.Dir(), f.Dir != "", f.User != "me", f.WorkingDir != "/srv/app",
		!slices.Equal(f.Env, []string{"A=1", "B="}), !slices.Equal(f.Layers, []string{digestNamed("1").String(), digestNamed("2").String()}):
		t.Errorf("fill: %+v, %+v", spec, f)
	}
	if len(r.image.Config.Env) != 5 {
		t.Errorf("the image's own environment has changed: %q", r.image.Config.Env)
	}
	r.o.userName, r.image.Config.WorkingDir = "you", ""
	if r.fill(&spec); spec.Rootfs.User != "you" || spec.Rootfs.WorkingDir != "" {
		t.Errorf("--user: %+v", spec.Rootfs)
	}
	spec = runner.Spec{}
	if rootOf(t, "host", &options{}).fill(&spec); spec.Image != "host" || spec.Rootfs != nil {
		t.Errorf("host: %+v", spec)
	}
	if rootOf(t, "dir:/x", &options{userName: "me"}).fill(&spec); spec.Rootfs.Dir != "/x" || spec.Rootfs.User != "me" {
		t.Errorf("dir: %+v", spec.Rootfs)
	}
}
