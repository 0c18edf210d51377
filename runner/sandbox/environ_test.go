package sandbox

import (
	"slices"
	"testing"
)

// TestHomeOf checks which home installers write to: the one that the command gets.
func TestHomeOf(t *testing.T) {
	for _, row := range []struct {
		name, want    string
		defaults, own []string
	}{
		{"the account's", "/root", []string{"HOMES=/a"}, []string{"XHOME=/b"}},
		{"the sandbox's", "/home/agent", []string{"HOME=/home/agent"}, nil},
		{"the command's", "/c", []string{"HOME=/a"}, []string{"HOME=/b", "HOME=/c"}},
		{"relative or empty", "/a", []string{"HOME=/a"}, []string{"HOME=b", "HOME="}},
	} {
		if got := homeOf("/root", row.defaults, row.own); got != row.want {
			t.Errorf("%s: %q", row.name, got)
		}
	}
	env := hostEnv("/home/agent")
	for _, want := range []string{"PATH=/home/agent/.local/bin:" + systemPath, "npm_config_prefix=/home/agent/.local"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
}

// TestNPMGlobalConfig checks that the prefix of a sandbox does not hide the machine's configuration of npm.
func TestNPMGlobalConfig(t *testing.T) {
	for _, row := range []struct {
		files []string
		want  string
	}{
		{nil, ""},
		{[]string{"/usr/bin/node"}, ""},
		{[]string{"/usr/etc/npmrc"}, ""},
		{[]string{"/usr/bin/node", "/usr/etc/npmrc"}, "/usr/etc/npmrc"},
		{[]string{"/usr/bin/node", "/usr/etc/npmrc", "/usr/local/etc/npmrc"}, "/usr/etc/npmrc"},
		{[]string{"/usr/local/bin/node", "/usr/bin/node", "/usr/etc/npmrc", "/usr/local/etc/npmrc"}, "/usr/local/etc/npmrc"},
		{[]string{"/usr/local/bin/node", "/usr/bin/node", "/usr/etc/npmrc"}, ""},
	} {
		if got := npmGlobalConfig(func(path string) bool { return slices.Contains(row.files, path) }); got != row.want {
			t.Errorf("%q: %q, want %q", row.files, got, row.want)
		}
	}
}

// TestPrefixPath checks that the directories of a spec come before the image's.
func TestPrefixPath(t *testing.T) {
	got := prefixPath([]string{"A=1", "PATH=/bin:/usr/bin"}, []string{"/h/x", "/h/y"})
	if want := []string{"A=1", "PATH=/h/x:/h/y:/bin:/usr/bin"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
