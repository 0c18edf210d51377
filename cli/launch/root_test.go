package launch

import (
	"strings"
	"testing"

	"demesne/cli/app"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
)

func rootOf(t *testing.T, name string, o *Options) *Root {
	t.Helper()
	var err error
	if name != "" {
		if o.Image, err = imageref.Parse(name); err != nil {
			t.Fatal(err)
		}
	}
	o.App = &app.App{Console: app.Console{Env: func(string) (string, bool) { return "", false }}}
	r, err := o.NewRoot()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRootArgv checks which command runs: flags override the image's configuration.
func TestRootArgv(t *testing.T) {
	shell, sh := "text", []string{"sh"}
	c := oci.Config{Entrypoint: []string{"entry", "e"}, Cmd: []string{"cmd"}}
	for _, k := range []struct {
		image string
		found *images.Image
		o     Options
		args  string
		want  string
		why   string
	}{
		{"", nil, Options{}, "ls -l", "ls -l", ""},
		{"", nil, Options{}, "", "", "no command given"},
		{"host", nil, Options{ProcessOptions: ProcessOptions{Entrypoint: &sh}}, "-l", "sh -l", ""},
		{"host", nil, Options{ProcessOptions: ProcessOptions{Shell: &shell}}, "a", "/bin/sh -c text a", ""},
		{"dir:/x", nil, Options{}, "ls", "ls", ""},
		{"dir:/x", nil, Options{}, "", "", "no command given"},
		{"python", nil, Options{}, "", "", ""}, // not found yet, so not known yet
		{"python", nil, Options{ProcessOptions: ProcessOptions{Shell: &shell}}, "", "/bin/sh -c text", ""},
		{"python", nil, Options{ProcessOptions: ProcessOptions{Shell: &shell, Entrypoint: &sh}}, "", "", "cannot be combined"},
		{"python", &images.Image{Config: c}, Options{}, "", "entry e cmd", ""},
		{"python", &images.Image{Config: c}, Options{}, "mine", "entry e mine", ""},
		{"python", &images.Image{Config: c}, Options{ProcessOptions: ProcessOptions{Entrypoint: &sh}}, "", "sh", ""},
		{"python", &images.Image{Config: c}, Options{ProcessOptions: ProcessOptions{Entrypoint: &[]string{}}}, "", "", "no command"},
		{"python", &images.Image{Config: c}, Options{ProcessOptions: ProcessOptions{Entrypoint: &[]string{}}}, "a b", "a b", ""},
		{"python", &images.Image{}, Options{}, "", "", "no command"},
	} {
		r := rootOf(t, k.image, &k.o)
		c := r.Config()
		if k.found != nil {
			c = &k.found.Config
		}
		argv, err := r.Argv(c, strings.Fields(k.args))
		if got := strings.Join(argv, " "); got != k.want || (err == nil) != (k.why == "") || err != nil && !strings.Contains(err.Error(), k.why) {
			t.Errorf("%s %q: %q, %v; want %q, %s", k.image, k.args, got, err, k.want, k.why)
		}
	}
}
