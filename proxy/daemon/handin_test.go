package daemon

import (
	"slices"
	"testing"
)

// TestHandIn checks which mirrors a sandbox gets as variables, and that no credential is among them.
func TestHandIn(t *testing.T) {
	for name, row := range map[string]struct {
		files, env map[string]string
		want       []string
	}{
		"files": {
			files: map[string]string{
				"/home/me/.npmrc":               "registry=https://user:secret@npm.corp.test:8443/all/?token=secret\n//npm.corp.test:8443/:_authToken=secret\n@a:registry=https://a.corp.test\n",
				"/etc/npmrc":                    "registry=https://other.corp.test\n",
				"/home/me/.config/pip/pip.conf": "[global]\nindex_url = https://secret@pip.corp.test/simple\nextra-index-url =\n  https://x:secret@one.corp.test/simple\n  https://two.corp.test/simple\n",
				"/home/me/.config/go/env":       "GOPROXY=https://u:secret@go.corp.test|https://b.corp.test,direct\nGOSUMDB=off\n",
			},
			want: []string{
				"npm_config_registry=https://npm.corp.test:8443/all/", "PIP_INDEX_URL=https://pip.corp.test/simple",
				"PIP_EXTRA_INDEX_URL=https://one.corp.test/simple https://two.corp.test/simple", "GOPROXY=https://go.corp.test|https://b.corp.test,direct",
			},
		},
		"variables win": {
			files: map[string]string{"/etc/pip.conf": "[global]\nindex-url = https://pip.corp.test/simple\n"},
			env:   map[string]string{"PIP_INDEX_URL": "https://mine.corp.test/simple", "GOSUMDB": "sum.corp.test+abc https://s:secret@sum.corp.test"},
			want:  []string{"PIP_INDEX_URL=https://mine.corp.test/simple", "GOSUMDB=sum.corp.test+abc https://sum.corp.test"},
		},
		"out of reach or unclear": {
			files: map[string]string{
				"/home/me/.npmrc": "registry=https://npm.corp.test/${NPM_TOKEN}/\n", "/etc/pip.conf": "[global]\nindex-url = http://127.0.0.1:3141/\nextra-index-url = nonsense://secret@x\n",
			},
			env: map[string]string{"NPM_TOKEN": "secret", "GOPROXY": "direct"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := machine(t, row.files, row.env).handIn(); !slices.Equal(got, row.want) {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

// TestAuthorities checks which files of certificates the configuration of tools names.
func TestAuthorities(t *testing.T) {
	h := machine(t, map[string]string{
		"/home/me/.npmrc": "cafile=relative.pem\n", "/usr/etc/npmrc": "cafile=/usr/share/corp.pem\n",
		"/etc/pip.conf": "[global]\ncert = /opt/corp/pip.pem\n",
	}, nil)
	if got, want := h.authorities(), []string{"/opt/corp/pip.pem"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q: the first file of a tool that has the key decides", got, want)
	}
	h = machine(t, map[string]string{"/usr/etc/npmrc": "cafile=\"/usr/share/corp.pem\"\n"}, nil)
	if got, want := h.authorities(), []string{"/usr/share/corp.pem"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
