package cli

import (
	"strings"
	"testing"

	"demesne/cli/app"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
)

func rootOf(t *testing.T, name string, o *options) *root {
	t.Helper()
	var err error
	if name != "" {
		if o.image, err = imageref.Parse(name); err != nil {
			t.Fatal(err)
		}
	}
	o.App = &app.App{Console: app.Console{Env: func(string) (string, bool) { return "", false }}}
	r, err := o.newRoot()
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
		o     options
		args  string
		want  string
		why   string
	}{
		{"", nil, options{}, "ls -l", "ls -l", ""},
		{"", nil, options{}, "", "", "no command given"},
		{"host", nil, options{processOptions: processOptions{entrypoint: &sh}}, "-l", "sh -l", ""},
		{"host", nil, options{processOptions: processOptions{shell: &shell}}, "a", "/bin/sh -c text a", ""},
		{"dir:/x", nil, options{}, "ls", "ls", ""},
		{"dir:/x", nil, options{}, "", "", "no command given"},
		{"python", nil, options{}, "", "", ""}, // not found yet, so not known yet
		{"python", nil, options{processOptions: processOptions{shell: &shell}}, "", "/bin/sh -c text", ""},
		{"python", nil, options{processOptions: processOptions{shell: &shell, entrypoint: &sh}}, "", "", "cannot be combined"},
		{"python", &images.Image{Config: c}, options{}, "", "entry e cmd", ""},
		{"python", &images.Image{Config: c}, options{}, "mine", "entry e mine", ""},
		{"python", &images.Image{Config: c}, options{processOptions: processOptions{entrypoint: &sh}}, "", "sh", ""},
		{"python", &images.Image{Config: c}, options{processOptions: processOptions{entrypoint: &[]string{}}}, "", "", "no command"},
		{"python", &images.Image{Config: c}, options{processOptions: processOptions{entrypoint: &[]string{}}}, "a b", "a b", ""},
		{"python", &images.Image{}, options{}, "", "", "no command"},
	} {
		r := rootOf(t, k.image, &k.o)
		c := r.config()
		if k.found != nil {
			c = &k.found.Config
		}
		argv, err := r.argv(c, strings.Fields(k.args))
		if got := strings.Join(argv, " "); got != k.want || (err == nil) != (k.why == "") || err != nil && !strings.Contains(err.Error(), k.why) {
			t.Errorf("%s %q: %q, %v; want %q, %s", k.image, k.args, got, err, k.want, k.why)
		}
	}
}
